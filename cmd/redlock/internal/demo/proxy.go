package demo

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// proxy stands in front of a node that must not be touched, and lets it look
// killed or hung to those who come through it.
//
// Hung, it behaves as a process that was sent SIGSTOP: connections are
// accepted, nothing is answered, and what has been sent meanwhile arrives when
// the proxy is resumed, even from clients that have hung up since. Killed, it
// resets its connections, refuses new ones, and forgets what was under way.
type proxy struct {
	network, target string
	wg              sync.WaitGroup // accept loops and relays

	mu       sync.Mutex // guards what follows; nobody dials or relays under it
	listener net.Listener
	relays   map[*relay]struct{}
	gate     chan struct{} // closed: traffic passes
	closed   bool
}

func newProxy(network, target string) (*proxy, error) {
	p := &proxy{network: network, target: target, relays: make(map[*relay]struct{}), gate: make(chan struct{})}
	close(p.gate)
	return p, p.Revive()
}

// dial connects through the proxy. That a killed proxy refuses is not left to
// its closed port: somebody else may have the port by now.
func (p *proxy) dial(ctx context.Context) (net.Conn, error) {
	p.mu.Lock()
	listener := p.listener
	p.mu.Unlock()
	if listener == nil {
		return nil, &net.OpError{Op: "dial", Net: p.network, Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
}

// Kill implements node.
func (p *proxy) Kill() {
	p.mu.Lock()
	listener, relays := p.listener, p.relays
	p.listener, p.relays = nil, make(map[*relay]struct{})
	p.mu.Unlock()
	if listener != nil {
		_ = listener.Close() // nothing is to be had from it any more
	}
	for r := range relays {
		r.cut()
	}
	// Only now: what a hung node had not executed is forgotten.
	p.Resume()
}

// Revive implements node.
func (p *proxy) Revive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

// Hang implements node.
func (p *proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		if p.listener != nil {
			p.gate = make(chan struct{})
		}
	default:
	}
}

// Resume implements node.
func (p *proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.openLocked()
}

func (p *proxy) openLocked() {
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// close ends the proxy and waits for all its goroutines.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Kill()
	p.wg.Wait()
}

func (p *proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		r := newRelay(p, client)
		p.mu.Lock()
		alive := p.listener == listener
		if alive {
			p.relays[r] = struct{}{}
			p.wg.Go(r.run)
		}
		p.mu.Unlock()
		if !alive {
			r.cut()
			return
		}
	}
}

func (p *proxy) forget(r *relay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.relays, r)
}

// pass waits while the proxy hangs. It returns false if the relay was cut.
func (p *proxy) pass(r *relay) bool {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
		return r.ctx.Err() == nil
	case <-r.ctx.Done():
		return false
	}
}

// relay is one connection through a proxy.
type relay struct {
	proxy  *proxy
	client net.Conn
	ctx    context.Context // ends with cut
	cancel context.CancelFunc

	mu     sync.Mutex // guards what follows
	server net.Conn
}

func newRelay(p *proxy, client net.Conn) *relay {
	r := &relay{proxy: p, client: client}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// cut resets both sides at once.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	r.cancel()
	reset(r.client)
	if r.server != nil {
		reset(r.server)
	}
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // closing is what matters
	}
	_ = conn.Close()
}

func (r *relay) run() {
	defer r.proxy.forget(r)
	defer r.cut()
	server, err := new(net.Dialer).DialContext(r.ctx, r.proxy.network, r.proxy.target)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.server = server
	if r.ctx.Err() != nil {
		reset(server)
	}
	r.mu.Unlock()

	var answers sync.WaitGroup
	answers.Go(func() {
		r.pump(r.client, server)
		// The node has hung up, and so does the proxy.
		_ = r.client.Close()
	})
	r.pump(server, r.client)
	// The client has hung up. The node gets to read all that was sent before,
	// and says itself when it has; resetting now might take it away.
	if half, ok := server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	answers.Wait()
}

// pump carries bytes from one side to the other. When they are not wanted any
// more it goes on reading, so that the sender is not held up.
func (r *relay) pump(to, from net.Conn) {
	buffer := make([]byte, 16<<10)
	wanted := true
	for {
		n, err := from.Read(buffer)
		if !r.proxy.pass(r) {
			return
		}
		if n > 0 && wanted {
			_, failed := to.Write(buffer[:n])
			wanted = failed == nil
		}
		if err != nil {
			return
		}
	}
}
