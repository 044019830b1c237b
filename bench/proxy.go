package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// A proxy stands before one node and holds every answer back for a while. Requests pass at once, and any number of
// answers may be on the way: it is a long cable, not a slow server.
type proxy struct {
	listener net.Listener
	target   string
	delay    time.Duration

	mu     sync.Mutex // guards conns and closed
	conns  []net.Conn
	closed bool

	wg sync.WaitGroup // everything that runs; close waits for it
}

func startProxy(target string, delay time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, delay: delay}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.closed {
			_, _ = client.Close(), server.Close()
		}
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() { forward(server, client, 0) })
		p.wg.Go(func() { forward(client, server, p.delay) })
	}
}

// forward carries bytes until one side ends, and then ends the other.
func forward(to, from net.Conn, delay time.Duration) {
	type chunk struct {
		data []byte
		due  time.Time
	}
	chunks := make(chan chunk, 1024)
	var wg sync.WaitGroup
	wg.Go(func() {
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.data); err != nil {
				_ = from.Close()
			}
		}
		_ = to.Close()
	})
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			chunks <- chunk{buffer[:n], time.Now().Add(delay)}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	wg.Wait()
}

func (p *proxy) close() error {
	errs := []error{p.listener.Close()}
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close() // closed already, if a side ended
	}
	p.mu.Unlock()
	p.wg.Wait()
	return errors.Join(errs...)
}
