package pool

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/gomodule/redigo/redis"
)

// Connecting may take this many node timeouts: TCP, TLS and the handshake are
// several round trips.
const connectTimeouts = 4

// open dials and does the handshake, all of it within one bound and ended by
// Close, except where a wrapped redigo pool does not look at its context.
func (p *Pool) open() (*link, error) {
	deadline := p.clock.Elapsed() + connectTimeouts*p.timeout
	ctx, cancel := context.WithTimeout(p.ctx, connectTimeouts*p.timeout)
	defer cancel()
	l, err := p.dialUntil(ctx)
	if err != nil {
		return nil, p.dialError(ctx, err)
	}
	stop := context.AfterFunc(ctx, l.cut)
	err = p.handshake(l, deadline)
	if !stop() {
		// It was cut, or is about to be.
		l.dirty = true
		err = cmp.Or(err, ctx.Err())
	}
	if err != nil {
		l.hangUp()
		return nil, p.dialError(ctx, err)
	}
	return l, nil
}

// dialLink takes a new connection out of the redigo pool.
func (p *Pool) dialLink() (*link, error) {
	ctx, cancel := context.WithTimeout(p.ctx, connectTimeouts*p.timeout)
	defer cancel()
	l, err := p.dialUntil(ctx)
	if err != nil {
		return nil, p.dialError(ctx, err)
	}
	return l, nil
}

func (p *Pool) dialUntil(ctx context.Context) (*link, error) {
	var a attempt
	conn, err := p.redis.GetContext(context.WithValue(ctx, attemptKey{}, &a))
	if a.stop != nil && !a.stop() && err == nil {
		_ = conn.Close() // it was cut in the last moment
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, wire: a.wire, gone: make(chan struct{})}
	if l.wire == nil {
		l.stirred = make(chan struct{}, 1)
	}
	return l, nil
}

// dialError says why there is no connection.
func (p *Pool) dialError(ctx context.Context, err error) error {
	switch {
	case p.ctx.Err() != nil:
		return ErrClosed
	case isAnswer(err):
		return err
	case ctx.Err() != nil:
		return errConnectTimeout // it shows as the use of a closed connection
	}
	if err = normalise(err); errors.Is(err, ErrTimeout) {
		return errConnectTimeout
	}
	return err
}

// attempt is where dialWire leaves the wire it made: redigo's pool hides the
// connection it dialled.
type attempt struct {
	wire *wire
	stop func() bool // keeps the end of the context from cutting the wire
}

// attemptKey is the context key of the attempt.
type attemptKey struct{}

// dialRedis is the DialContext of our own redigo pool.
func (p *Pool) dialRedis(ctx context.Context) (redis.Conn, error) {
	options := []redis.DialOption{redis.DialContextFunc(p.dialWire)}
	if p.address.Password != "" {
		options = append(options, redis.DialUsername(p.address.User), redis.DialPassword(p.address.Password))
	}
	if p.address.Database != 0 {
		options = append(options, redis.DialDatabase(p.address.Database))
	}
	return redis.DialContext(ctx, p.address.Network, p.address.Endpoint, append(options, p.redigo...)...)
}

func (p *Pool) dialWire(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if network != "unix" && (p.address.TLS || p.tls != nil) {
		encrypted := tls.Client(conn, p.tlsFor(address))
		if err := encrypted.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("TLS: %w", err)
		}
		conn = encrypted
	}
	w := &wire{Conn: conn}
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.wire, a.stop = w, context.AfterFunc(ctx, w.abort)
	}
	return w, nil
}

func (p *Pool) tlsFor(address string) *tls.Config {
	config := &tls.Config{}
	if p.tls != nil {
		config = p.tls.Clone()
	}
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	return config
}
