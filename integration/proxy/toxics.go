package proxy

import "github.com/Shopify/toxiproxy/v2/toxics"

// Toxics of our own, where those of toxiproxy do something else: its "timeout" closes connections when it is
// removed, and its "limit_data" leaves goroutines behind that wait to pass on what comes after the limit.

func init() {
	toxics.Register(toxicStall, new(stall))
	toxics.Register(toxicDrop, new(drop))
	toxics.Register(toxicCut, new(cut))
}

const (
	toxicStall = "go_redlock_stall"
	toxicDrop  = "go_redlock_drop"
	toxicCut   = "go_redlock_cut"
)

// A stall passes nothing on, and takes nothing either, so that all is still there when it ends.
type stall struct{}

func (*stall) Pipe(stub *toxics.ToxicStub) { <-stub.Interrupt }

// A drop takes everything and passes nothing on.
type drop struct{}

func (*drop) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
		}
	}
}

// A cut ends each connection after so many bytes.
type cut struct {
	After int `json:"after"`
}

type cutState struct{ passed int }

func (*cut) NewState() any { return new(cutState) }

func (c *cut) Pipe(stub *toxics.ToxicStub) {
	state := stub.State.(*cutState)
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			left := c.After - state.passed
			if len(chunk.Data) < left {
				state.passed += len(chunk.Data)
				stub.Output <- chunk
				continue
			}
			chunk.Data = chunk.Data[:left]
			if left > 0 {
				stub.Output <- chunk
			}
			stub.Close()
			// The one before us in the chain passes on until its end is closed, and it does not look whether we
			// still listen.
			for range stub.Input {
			}
			return
		}
	}
}
