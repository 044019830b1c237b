package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// Pauses between two attempts to reach a suspect node: the first, and the
// longest, before randomisation.
const (
	minPause = 25 * time.Millisecond
	maxPause = time.Second
)

// Connecting may take this many node timeouts: TCP, TLS and the handshake are
// several round trips.
const connectTimeouts = 4

// Identity is what a node says of itself when a connection opens.
type Identity struct {
	// RunID is the server's run id, new at every start; empty if unknown.
	RunID string
	// Uptime is how long the server had been running.
	Uptime time.Duration
	// Err says why the server could not be asked (INFO is often denied).
	Err error
}

// connectLocked starts the goroutine that connects. The caller has set the
// state; there is never more than one such goroutine.
func (p *Pool) connectLocked(pause time.Duration) {
	p.wg.Go(func() { p.connect(pause) })
}

// connect tries until there is a connection, or the pool is closed.
func (p *Pool) connect(pause time.Duration) {
	next := minPause
	for {
		if !p.sleep(pause) {
			return
		}
		l, err := p.open()
		if p.connected(l, err) {
			return
		}
		// Between half and all of it: probes of many clients spread out.
		pause = next/2 + rand.N(next/2)
		next = min(2*next, maxPause)
	}
}

func (p *Pool) sleep(d time.Duration) bool {
	if d <= 0 {
		return p.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// connected puts the outcome of an attempt into effect. It returns false if
// there must be another.
func (p *Pool) connected(l *link, err error) bool {
	p.mu.Lock()
	switch {
	case p.state == Closed:
		p.mu.Unlock()
		if l != nil {
			_ = l.conn.Close()
		}
		return true
	case err != nil:
		never := p.suspectLocked(err)
		p.mu.Unlock()
		deliver(never, Result{Err: suspectError(err)})
		return false
	}
	p.state, p.cause, p.link = Up, nil, l
	p.identity = l.identity
	p.connects++
	l.users = 1 // the reader
	p.wg.Add(1) // for the link: until it is hung up
	p.wg.Go(func() { p.read(l) })
	writer := p.appointLocked()
	p.mu.Unlock()
	if writer != nil {
		p.write(writer, false)
	}
	return true
}

// suspectLocked makes the node suspect and returns the calls that can now
// never be sent. Somebody must be connecting, or be made to.
func (p *Pool) suspectLocked(cause error) (never []*Call) {
	p.state, p.cause = Suspect, cause
	return p.waiting.take()
}

// broken ends a link that failed. Calls in flight may have been executed;
// those that wait go out on the next connection, unless the node is suspect.
func (p *Pool) broken(l *link, cause error) {
	cause = normalise(cause)
	p.mu.Lock()
	if p.link != l {
		p.mu.Unlock()
		return
	}
	p.link = nil
	maybe := l.flight.take()
	var never []*Call
	var pause time.Duration
	if l.answered && !errors.Is(cause, ErrTimeout) {
		// The server went away, as it does when it restarts: look at once.
		p.state = Connecting
	} else {
		never = p.suspectLocked(cause)
		pause = minPause
	}
	p.mu.Unlock()

	l.end(false)
	deliver(maybe, Result{Err: cause, Sent: Maybe})
	deliver(never, Result{Err: suspectError(cause)})

	// Only now: results of the old connection come before any of the new.
	p.mu.Lock()
	if p.state != Closed {
		p.connectLocked(pause)
	}
	p.mu.Unlock()
}

// open dials and does the handshake.
func (p *Pool) open() (*link, error) {
	ctx, cancel := context.WithTimeout(p.ctx, connectTimeouts*p.timeout)
	defer cancel()
	l := &link{}
	conn, err := p.redis.GetContext(context.WithValue(ctx, wireKey{}, &l.wire))
	if err != nil {
		return nil, normalise(err)
	}
	l.conn = conn
	if l.wire == nil {
		l.stirred = make(chan struct{}, 1)
	} else {
		// Close interrupts the handshake, too.
		defer context.AfterFunc(p.ctx, l.wire.abort)()
	}
	if err := p.handshake(l); err != nil {
		_ = conn.Close()
		if l.wire != nil {
			l.wire.abort() // redigo keeps a connection that answered an error
		}
		return nil, normalise(err)
	}
	return l, nil
}

// handshake loads the scripts, keeps the hashes that the server computed, and
// asks who it is. All of it is one round trip.
func (p *Pool) handshake(l *link) error {
	for _, script := range scripts.All() {
		if err := l.conn.Send("SCRIPT", "LOAD", script.Source()); err != nil {
			return err
		}
	}
	if err := l.conn.Send("INFO", "server"); err != nil {
		return err
	}
	if err := l.conn.Flush(); err != nil {
		return err
	}
	for _, script := range scripts.All() {
		hash, err := redis.String(l.receive(connectTimeouts * p.timeout))
		switch {
		case err == nil:
			l.hashes[script.Index()] = hash
		case hasCode(err, "NOPERM"), hasCode(err, "ERR unknown"):
			// Without SCRIPT LOAD the source itself is sent, always.
		default:
			return err
		}
	}
	info, err := redis.String(l.receive(connectTimeouts * p.timeout))
	if err != nil && !isAnswer(err) {
		return err
	}
	l.identity = parseIdentity(info, err)
	if known := l.identity.Err == nil; known && l.identity.Uptime < p.guard {
		// Uptime is in whole seconds, cut off: the server has been running for
		// at least that long, so this is never too early.
		l.grants = p.clock.Elapsed() - l.identity.Uptime + p.guard
	}
	return nil
}

// parseIdentity reads INFO server.
func parseIdentity(info string, err error) Identity {
	if err != nil {
		return Identity{Err: err}
	}
	id := Identity{Err: errors.New("INFO server shows no run id and uptime")}
	uptime := int64(-1)
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch key {
		case "run_id":
			id.RunID = value
		case "uptime_in_seconds":
			n, err := strconv.ParseInt(value, 10, 64)
			if err == nil && n >= 0 && n <= int64(maxUptime/time.Second) {
				uptime = n
			}
		}
	}
	if id.RunID != "" && uptime >= 0 {
		id.Uptime, id.Err = time.Duration(uptime)*time.Second, nil
	}
	return id
}

// maxUptime keeps a nonsensical uptime from overflowing a duration.
const maxUptime = 100 * 365 * 24 * time.Hour

// wireKey is the context key under which open leaves the place for the wire
// that its dialling makes: redigo's pool hides the connection it dialled.
type wireKey struct{}

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
	if place, ok := ctx.Value(wireKey{}).(**wire); ok {
		*place = w
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
