package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/redquorum/go-redlock/integration/internal/port"
)

// A Direction is one of the two ways through a proxy.
type Direction string

const (
	// Upstream is from the client to the node: requests.
	Upstream Direction = "upstream"
	// Downstream is from the node to the client: replies.
	Downstream Direction = "downstream"
)

// A Proxy stands in front of one node. Its methods may be called from any goroutine; when one fails, it marks
// the test as failed.
type Proxy struct {
	tb   testing.TB
	addr string

	mu      sync.Mutex // one fault is set at a time; guards the rest
	proxy   *toxiproxy.Proxy
	refuses bool
	// lossy says that connections have lost bytes, so that they cannot go on when the fault ends.
	lossy bool
	// upstream is what the proxy stands in front of when it does not divert.
	upstream string
}

// A Fleet is a row of proxies.
type Fleet []*Proxy

// Front puts one proxy before each address, and ends them when the test ends. A proxy whose node cannot be
// reached accepts connections and closes them at once.
func Front(tb testing.TB, addrs []string) Fleet {
	tb.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	var fleet Fleet
	for _, upstream := range addrs {
		p := &Proxy{tb: tb, upstream: upstream}
		const host = "127.0.0.1"
		err := port.On(tb, host, func(number int) error {
			p.addr = net.JoinHostPort(host, strconv.Itoa(number))
			p.proxy = toxiproxy.NewProxy(server, upstream, p.addr, upstream)
			// A port that was taken in between is the one thing that can go wrong here.
			if err := p.proxy.Start(); err != nil {
				return fmt.Errorf("%w: %w", port.ErrTaken, err)
			}
			return nil
		})
		if err != nil {
			tb.Fatalf("proxy: in front of %s: %v", upstream, err)
		}
		tb.Cleanup(p.close)
		fleet = append(fleet, p)
	}
	return fleet
}

// Addrs returns the addresses of the proxies, in the order of the nodes behind them.
func (f Fleet) Addrs() []string {
	addrs := make([]string, len(f))
	for i, p := range f {
		addrs[i] = p.addr
	}
	return addrs
}

// Addr returns "host:port". It stays the same whatever happens.
func (p *Proxy) Addr() string { return p.addr }

// Latency delays each direction by d, more or less by up to jitter. Both are cut to milliseconds.
func (p *Proxy) Latency(d, jitter time.Duration) {
	p.tb.Helper()
	attributes := map[string]int64{"latency": d.Milliseconds(), "jitter": jitter.Milliseconds()}
	p.set(
		toxic{Type: "latency", Stream: Upstream, Attributes: attributes},
		toxic{Type: "latency", Stream: Downstream, Attributes: attributes},
	)
}

// Stall holds back what goes in the direction, until the fault ends and all of it arrives. Neither side sees
// the other close its connection meanwhile.
func (p *Proxy) Stall(d Direction) {
	p.tb.Helper()
	p.set(toxic{Type: toxicStall, Stream: d})
}

// Drop loses what goes in the direction. After Drop(Downstream) the node executes what it is sent, and the
// client does not learn of it. The end of the fault ends the connections, too.
func (p *Proxy) Drop(d Direction) {
	p.tb.Helper()
	p.set(toxic{Type: toxicDrop, Stream: d})
}

// HalfOpen accepts connections and loses whatever is sent on them, in both directions: what is left of a
// connection whose other side is gone without a word. The end of the fault ends the connections, too.
func (p *Proxy) HalfOpen() {
	p.tb.Helper()
	p.set(toxic{Type: toxicDrop, Stream: Upstream}, toxic{Type: toxicDrop, Stream: Downstream})
}

// ResetInReply resets each connection after n bytes of replies. Connections that are open end at once, so that
// all the client has begin anew.
func (p *Proxy) ResetInReply(n int) {
	p.tb.Helper()
	p.set(
		toxic{Type: toxicCut, Stream: Downstream, Attributes: map[string]int64{"after": int64(n)}},
		// Toxiproxy makes a connection end with a reset instead of an orderly close when there is a reset_peer in
		// its chain, also one that is for no connection.
		toxic{Type: "reset_peer", Stream: Downstream, Toxicity: new(float32)},
	)
	p.Cut()
}

// Cut closes all connections. New ones are accepted; a fault that is set goes on.
func (p *Proxy) Cut() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// Refuse closes all connections and refuses new ones.
func (p *Proxy) Refuse() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxy.Stop()
	p.refuses = true
	p.clearLocked()
}

// Divert closes all connections and leads new ones to another server, such as one of [AnswerWith].
func (p *Proxy) Divert(addr string) {
	p.tb.Helper()
	p.set()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leadLocked(addr)
}

// Heal ends the fault.
func (p *Proxy) Heal() {
	p.tb.Helper()
	p.set()
}

// toxic is how toxiproxy wants a fault described. The toxicity is the share of connections that it is for; it is
// a pointer as an absent one means all of them.
type toxic struct {
	Type       string           `json:"type"`
	Stream     Direction        `json:"stream"`
	Toxicity   *float32         `json:"toxicity,omitempty"`
	Attributes map[string]int64 `json:"attributes"`
}

// set replaces the fault by the one that is made of these toxics.
func (p *Proxy) set(chain ...toxic) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	// First the connections that cannot go on, then the toxics: in the other order a reply could slip through
	// behind the ones that were lost.
	switch {
	case p.proxy.Upstream != p.upstream:
		p.leadLocked(p.upstream)
	case p.lossy:
		p.cutLocked()
	}
	p.clearLocked()
	for _, t := range chain {
		description, err := json.Marshal(t)
		if err == nil {
			_, err = p.proxy.Toxics.AddToxicJson(bytes.NewReader(description))
		}
		if err != nil {
			p.tb.Errorf("proxy: %s in front of %s: %v", t.Type, p.proxy.Upstream, err)
		}
		p.lossy = p.lossy || t.Type == toxicDrop
	}
	if p.refuses {
		p.refuses = false
		p.startLocked()
	}
}

func (p *Proxy) clearLocked() {
	p.proxy.Toxics.ResetToxics(context.Background())
	p.lossy = false
}

// leadLocked changes the server behind the proxy while no goroutine of toxiproxy's looks at it.
func (p *Proxy) leadLocked(addr string) {
	p.proxy.Stop()
	p.proxy.Upstream = addr
	p.refuses = false
	p.startLocked()
}

func (p *Proxy) cutLocked() {
	p.proxy.Stop()
	p.startLocked()
}

func (p *Proxy) startLocked() {
	if err := p.proxy.Start(); err != nil {
		p.tb.Errorf("proxy: in front of %s: %v", p.proxy.Upstream, err)
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Connections first: nothing then keeps a toxic from being removed, and the removal frees those that stall.
	p.proxy.Stop()
	p.clearLocked()
}
