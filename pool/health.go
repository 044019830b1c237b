package pool

import (
	"cmp"
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
	maxPause = 500 * time.Millisecond
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
	last := p.last
	p.wg.Go(func() { p.connect(last, pause) })
}

// connect tries until there is a connection, or the pool is closed.
func (p *Pool) connect(last *link, pause time.Duration) {
	if last != nil {
		select {
		case <-last.gone:
		case <-p.ctx.Done():
			return
		}
	}
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
			l.hangUp()
		}
		return true
	case err != nil:
		never := p.suspectLocked(err)
		first := !p.missed
		p.missed = true
		p.mu.Unlock()
		p.report()
		deliver(never, Result{Err: suspectError(err)})
		if first {
			p.logger.Warn("node cannot be reached", "node", p.name, "error", err)
		}
		return false
	}
	back := p.missed
	p.missed = false
	p.state, p.cause, p.link, p.last = Up, nil, l, l
	p.noteLocked(nil)
	p.identifyLocked(l)
	p.connects++
	l.since = p.clock.Elapsed()
	l.users = 1 // the reader
	p.wg.Add(1) // for the link: until it is hung up
	p.wg.Go(func() { p.read(l) })
	writer := p.appointLocked()
	p.mu.Unlock()
	p.report()
	if back {
		p.logger.Info("node is back", "node", p.name)
	}
	if writer != nil {
		p.write(writer, false)
	}
	return true
}

// suspectLocked makes the node suspect and returns the calls that can now
// never be sent. Somebody must be connecting, or be made to.
func (p *Pool) suspectLocked(cause error) (never []*Call) {
	p.state, p.cause = Suspect, cause
	p.noteLocked(cause)
	return p.waiting.take()
}

// identifyLocked takes over what the node says of itself, and puts it in
// quarantine if it may have forgotten locks.
func (p *Pool) identifyLocked(l *link) {
	id := l.identity
	p.identity.Store(&id)
	if id.Err != nil {
		return
	}
	changed := p.runID != "" && p.runID != id.RunID
	p.runID = id.RunID
	if p.guard == 0 {
		return
	}
	// Redis subtracts one whole second from another, each cut off, so it may
	// have been running for almost a second less than it says.
	if up := max(0, id.Uptime-time.Second); up < p.guard {
		p.quarantineLocked(l.asked - up + p.guard)
	}
	if changed {
		// However long this server has been running, it may be another than the
		// one that granted locks under this address until a moment ago.
		p.quarantineLocked(l.asked + p.guard)
	}
}

func (p *Pool) quarantineLocked(end time.Duration) {
	if !p.quarantined || end > p.grants {
		p.quarantined, p.grants = true, end
		if p.monitor != nil {
			p.changes.queue = append(p.changes.queue, Change{Kind: Quarantined, For: end - p.clock.Elapsed()})
		}
	}
}

// A rupture is what must be seen to after a link has ended.
type rupture struct {
	link  *link
	cause error
	never []*Call
	pause time.Duration
}

// broken ends a link that failed.
func (p *Pool) broken(l *link, cause error) {
	cause = normalise(cause)
	p.mu.Lock()
	if p.link != l {
		p.mu.Unlock()
		return
	}
	r := p.breakLocked(l, cause)
	p.mu.Unlock()
	p.repair(r)
}

// breakLocked ends the present link. Calls in flight may have been executed;
// those that wait go out on the next connection, unless the node is suspect.
func (p *Pool) breakLocked(l *link, cause error) rupture {
	r := rupture{link: l, cause: cause}
	p.link = nil
	l.dirty = true
	l.failLocked(cause)
	// A connection that served, or at least lasted, does not end because the
	// node is sick: the server restarts, or closes what is idle. Look at once.
	served := l.answered || p.clock.Elapsed()-l.since >= maxPause
	if served && !errors.Is(cause, ErrTimeout) {
		p.state = Connecting
	} else {
		r.never = p.suspectLocked(cause)
		r.pause = minPause
	}
	return r
}

// repair delivers the results of what a link that ended leaves behind, and
// goes about the next.
func (p *Pool) repair(r rupture) {
	p.report()
	r.link.cut()
	r.link.deliverLeft()
	deliver(r.never, Result{Err: suspectError(r.cause)})

	// Only now: results of the old connection come before any of the new.
	p.mu.Lock()
	if p.state != Closed {
		p.connectLocked(r.pause)
	}
	p.mu.Unlock()
}

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

// handshake loads the scripts, keeps the hashes that the server computed, and
// asks who it is. All of it is one round trip. All replies are read, even
// after an error, so that a connection that belongs to somebody else can be
// given back.
func (p *Pool) handshake(l *link, deadline time.Duration) error {
	l.dirty = true
	if l.wire != nil {
		// A server that refuses the connection hangs up after it has said so.
		// Whoever is still writing then learns of a broken pipe, and not why.
		l.wire.gather()
	}
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
	if l.wire != nil {
		if err := l.wire.release(); err != nil {
			return err
		}
	}
	receive := func() (any, error) {
		left := deadline - p.clock.Elapsed()
		if left <= 0 {
			return nil, ErrTimeout
		}
		return l.receive(left)
	}
	var refused error
	for _, script := range scripts.All() {
		reply, err := receive()
		if err != nil && !isAnswer(err) {
			// What the server said before it hung up is the reason why.
			return cmp.Or(refused, err)
		}
		hash, err := redis.String(reply, err)
		switch {
		case err == nil:
			l.hashes[script.Index()] = hash
		case hasCode(err, "NOPERM"), hasCode(err, "ERR unknown"):
			// Without SCRIPT LOAD the source itself is sent, always.
		case refused == nil:
			refused = err
		}
	}
	reply, err := receive()
	if err != nil && !isAnswer(err) {
		return cmp.Or(refused, err)
	}
	l.dirty = false
	l.identity = parseIdentity(redis.String(reply, err))
	l.asked = p.clock.Elapsed()
	return refused
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
