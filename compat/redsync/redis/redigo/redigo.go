// Package redigo makes the nodes of
// [github.com/redquorum/go-redlock/compat/redsync] of redigo pools, as redsync's
// package of this name does.
package redigo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	compat "github.com/redquorum/go-redlock/compat/redsync/redis"
	"github.com/redquorum/go-redlock/pool"
)

// Pool is what is needed of a redigo pool; [redis.Pool] is one.
type Pool interface {
	Get() redis.Conn // an error shows in the use of the connection
	GetContext(ctx context.Context) (redis.Conn, error)
}

// NewPool returns a node that is reached through a redigo pool of yours, which
// remains yours to close. One connection is taken out of it while there is
// something to do, and given back when there has been nothing for a while, and
// one more while somebody waits for a lock (unless the pool is a [redis.Pool]
// with a MaxActive of 1; one that is not a redis.Pool has to allow for two).
//
// Its connections must implement [redis.ConnWithTimeout], as those that redigo
// dials do; a type of your own around one has to pass these methods on. Without
// them every operation fails and says so, which redsync never asks for.
//
// The options, which redsync's function does not take, say how the node is
// treated: [pool.WithTimeout] and [pool.WithRestartGuard] are the ones to think
// of. Those about dialling have no place here, for the redigo pool dials; what
// is wrong with them is reported by every operation of the mutex.
func NewPool(delegate Pool, options ...pool.Option) compat.Pool {
	return &node{
		delegate: delegate,
		name:     fmt.Sprintf("redigo pool %d", made.Add(1)),
		options:  options,
	}
}

// made tells the pools of a program apart. Programs that make theirs in the
// same order give them the same names.
var made atomic.Uint64

type node struct {
	delegate Pool
	name     string
	options  []pool.Option
}

func (n *node) Node(options ...pool.Option) (*pool.Pool, error) {
	p, ok := n.delegate.(*redis.Pool)
	if !ok && n.delegate != nil {
		// It keeps nothing: what it closes goes back to the pool behind it.
		p = &redis.Pool{DialContext: n.delegate.GetContext}
	}
	return pool.Wrap(n.name, p, append(append([]pool.Option(nil), n.options...), options...)...)
}

func (n *node) Get(ctx context.Context) (compat.Conn, error) {
	if ctx == nil {
		return &conn{delegate: n.delegate.Get()}, nil
	}
	c, err := n.delegate.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{c}, nil
}

type conn struct{ delegate redis.Conn }

// do does not wait for a node that hangs for longer than the library would.
func (c *conn) do(command string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.delegate, pool.DefaultTimeout, command, args...)
}

func (c *conn) Get(name string) (string, error) {
	return notNil(redis.String(c.do("GET", name)))
}

func (c *conn) Set(name string, value string) (bool, error) {
	return isOK(c.do("SET", name, value))
}

func (c *conn) SetNX(name string, value string, expiry time.Duration) (bool, error) {
	return isOK(c.do("SET", name, value, "NX", "PX", expiry.Milliseconds()))
}

func (c *conn) PTTL(name string) (time.Duration, error) {
	ms, err := redis.Int64(c.do("PTTL", name))
	return time.Duration(ms) * time.Millisecond, err
}

func (c *conn) Eval(script *compat.Script, keysAndArgs ...any) (any, error) {
	reply, err := c.do("EVALSHA", arguments(script, script.Hash, keysAndArgs)...)
	var answer redis.Error
	if errors.As(err, &answer) && strings.HasPrefix(string(answer), "NOSCRIPT ") {
		reply, err = c.do("EVAL", arguments(script, script.Src, keysAndArgs)...)
	}
	return reply, err
}

func (c *conn) ScriptLoad(script *compat.Script) error {
	hash, err := redis.String(c.do("SCRIPT", "LOAD", script.Src))
	if err == nil {
		script.Hash = hash
	}
	return err
}

func (c *conn) Close() error { return c.delegate.Close() }

func arguments(script *compat.Script, head string, keysAndArgs []any) []any {
	args := []any{head}
	if script.KeyCount >= 0 {
		args = append(args, script.KeyCount)
	}
	return append(args, keysAndArgs...)
}

// isOK reads the answer to SET, which is nothing if the key was there.
func isOK(reply any, err error) (bool, error) {
	text, err := notNil(redis.String(reply, err))
	return text == "OK", err
}

// notNil makes "" of no value.
func notNil(text string, err error) (string, error) {
	if errors.Is(err, redis.ErrNil) {
		return "", nil
	}
	return text, err
}
