package pool

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Examination is what a node says to somebody who asks for everything that
// matters to locks. What is refused is part of the answer.
type Examination struct {
	// RoundTrip is the shortest of a few.
	RoundTrip time.Duration
	// Ahead is by how much the node's wall clock is ahead of ours, give or take
	// half the round trip; TimeErr is why it is not known.
	Ahead   time.Duration
	TimeErr error
	// Info has the fields of INFO; InfoErr is why it is nil.
	Info    map[string]string
	InfoErr error
	// Config has the settings appendfsync and min-replicas-to-write; ConfigErr is
	// why some are missing.
	Config    map[string]string
	ConfigErr error
	// Why this user may not do these; nil if they may.
	Load, Scan, Publish, Subscribe, Follow error // SCRIPT LOAD, SCAN, …, PSUBSCRIBE

	// Guard is what WithRestartGuard was given, and Quarantine for how long the
	// node still grants nothing because of it.
	Guard, Quarantine time.Duration
}

// examinedConfig are the settings that [Pool.Examine] asks for. Each is asked
// for by itself: old servers take one at a time, and asking for all would show
// passwords.
var examinedConfig = [...]string{"appendfsync", "min-replicas-to-write"}

// Examine asks the node on a connection of its own, which is closed afterwards,
// so that no call is delayed and what is asked shows that one more connection
// can be had. It publishes an empty message on channel, subscribes to it and,
// as a pattern, to follow, changes nothing, and takes as long as a connection
// and a few answers may take. It returns an error if the node did not answer.
func (p *Pool) Examine(ctx context.Context, channel, follow string) (*Examination, error) {
	if !p.occupy() {
		return nil, ErrClosed
	}
	defer p.wg.Done()
	if !p.owned && p.redis.MaxActive == 1 {
		return nil, errOneConnection
	}
	ctx, cancel := context.WithTimeout(ctx, 2*connectTimeouts*p.timeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)() //nolint:contextcheck // Close ends it as well
	l, err := p.dialUntil(ctx)
	if err != nil {
		return nil, p.dialError(ctx, err)
	}
	uncut := context.AfterFunc(ctx, l.cut)
	defer func() {
		uncut()
		l.dirty = true // it is subscribed, or broken
		l.hangUp()
	}()
	e := &examiner{pool: p, link: l}
	e.measure()
	e.tellTime()
	e.read()
	e.try(channel, follow)
	if e.broken != nil {
		return nil, normalise(e.broken)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Guard = p.guard
	if p.quarantined {
		e.Quarantine = max(0, p.grants-p.clock.Elapsed())
	}
	return &e.Examination, nil
}

// occupy makes Close wait for its caller, who must call wg.Done. It returns
// false if the pool is closed.
func (p *Pool) occupy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == Closed {
		return false
	}
	p.wg.Add(1)
	return true
}

// examiner has a connection to itself.
type examiner struct {
	Examination
	pool   *Pool
	link   *link
	broken error // the connection; nothing is asked any more
}

// ask sends one command and returns the answer, or the error that the node
// answered.
func (e *examiner) ask(command string, args ...any) (any, error) {
	if e.broken != nil {
		return nil, e.broken
	}
	err := e.link.conn.Send(command, args...)
	if err == nil {
		err = e.link.conn.Flush()
	}
	var reply any
	if err == nil {
		reply, err = e.link.receive(e.pool.timeout)
	}
	if err != nil && !isAnswer(err) {
		e.broken = err
	}
	return reply, err
}

func (e *examiner) measure() {
	const times = 3
	for i := range times {
		began := e.pool.clock.Elapsed()
		_, _ = e.ask("PING") // if it is refused that took as long
		if took := e.pool.clock.Elapsed() - began; i == 0 || took < e.RoundTrip {
			e.RoundTrip = took
		}
	}
}

func (e *examiner) tellTime() {
	before := e.pool.clock.Now()
	parts, err := redis.Int64s(e.ask("TIME"))
	after := e.pool.clock.Now()
	switch {
	case err != nil:
		e.TimeErr = err
	case len(parts) != 2, parts[0] <= 0, parts[0] > int64(maxTime/time.Second), parts[1] < 0, parts[1] >= int64(time.Second/time.Microsecond):
		e.TimeErr = errors.New("TIME shows no time")
	default:
		theirs := time.Unix(parts[0], parts[1]*int64(time.Microsecond))
		e.Ahead = theirs.Sub(before.Add(after.Sub(before) / 2))
	}
}

// maxTime, since 1970, keeps a nonsensical time from overflowing a duration, as
// do differences between nodes.
const maxTime = 200 * 365 * 24 * time.Hour

func (e *examiner) read() {
	info, err := redis.String(e.ask("INFO"))
	if e.InfoErr = err; err == nil {
		e.Info = make(map[string]string)
		for line := range strings.Lines(info) {
			if key, value, found := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); found {
				e.Info[key] = value
			}
		}
	}
	e.Config = make(map[string]string)
	for _, name := range examinedConfig {
		pair, err := redis.Strings(e.ask("CONFIG", "GET", name))
		switch {
		case err != nil:
			e.ConfigErr = err
		case len(pair) == 2:
			e.Config[name] = pair[1]
		}
	}
}

// try finds out what is allowed. Subscribing comes last: nothing else can be
// asked on such a connection.
func (e *examiner) try(channel, follow string) {
	_, e.Load = e.ask("SCRIPT", "LOAD", "return 1")
	_, e.Scan = e.ask("SCAN", 0, "COUNT", 1)
	_, e.Publish = e.ask("PUBLISH", channel, "")
	_, e.Subscribe = e.ask("SUBSCRIBE", channel)
	_, e.Follow = e.ask("PSUBSCRIBE", follow)
}
