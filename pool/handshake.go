package pool

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// Identity is what a node says of itself when a connection opens.
type Identity struct {
	// RunID is the server's run id, new at every start; empty if unknown.
	RunID string
	// Uptime is how long the server had been running.
	Uptime time.Duration
	// Err says why the server could not be asked (INFO is often denied).
	Err error
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
