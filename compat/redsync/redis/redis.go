// Package redis is what [github.com/redquorum/go-redlock/compat/redsync] wants
// of a node: the interfaces of redsync's package of this name, and a way to
// reach the node by this module's own means.
package redis

import (
	"context"
	"time"

	"github.com/redquorum/go-redlock/pool"
)

// Pool is one node. Package redigo makes one of a redigo pool.
//
// It has one method more than redsync's interface, so a Pool of your own needs
// that added to move.
type Pool interface {
	// Get returns a connection, for the caller to close. ctx bounds dialling and
	// the waiting for a free one; nil stands for no bound.
	Get(ctx context.Context) (Conn, error)
	// Node returns a new pool for the same node, with the options, which locks
	// are held through. The caller closes it. [pool.New] and [pool.Wrap] make
	// one.
	Node(options ...pool.Option) (*pool.Pool, error)
}

// Conn is one connection to a node, for one goroutine at a time. Methods return
// what the node answered as an error, or why there is no answer. That a key does
// not exist is not an error.
type Conn interface {
	// Get returns the value of a key, "" if there is none.
	Get(name string) (string, error)
	// Set sets a key that does not expire, and reports whether it did.
	Set(name string, value string) (bool, error)
	// SetNX sets a key that does not exist, to expire after expiry, cut off to
	// whole milliseconds, and reports whether it did.
	SetNX(name string, value string, expiry time.Duration) (bool, error)
	// Eval runs a script, by its hash if the node knows it.
	Eval(script *Script, keysAndArgs ...any) (any, error)
	// ScriptLoad loads a script and sets its hash.
	ScriptLoad(script *Script) error
	// PTTL returns when a key expires, or a negative number of milliseconds: -1
	// if it never does, -2 if there is none.
	PTTL(name string) (time.Duration, error)
	// Close gives the connection back.
	Close() error
}

// Script is a Lua script.
type Script struct {
	KeyCount int    // how many of its arguments are keys; negative: the first argument says so
	Src      string // the source
	Hash     string // what EVALSHA knows it by
}

// NewScript returns a script.
func NewScript(keyCount int, src, hash string) *Script {
	return &Script{keyCount, src, hash}
}
