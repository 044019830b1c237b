package scripts

import (
	"time"
)

// A Call is a script and its arguments, ready for the wire. One Call is sent to
// every node: it must not be changed once it has been.
type Call struct {
	Script *Script
	// Args is what follows the script's hash in EVALSHA: the number of keys,
	// the keys, the arguments.
	Args []any
	// Size is about how many bytes the call takes on the wire.
	Size int
	// Grants says that the call may give a key to its token.
	Grants bool
	// Prolongs says that the call may make a key last longer that its token has.
	Prolongs bool
	// Held says that a quorum held the keys for the token a moment ago: a node
	// that may have forgotten others' locks endangers none by granting this one.
	Held bool
	// Plain says that the command of [Call.AppendSet] may go first, and the
	// script only if that was not answered with OK.
	Plain bool

	settable bool // a plain SET grants the same
}

// Fencing asks acquire to raise the counters. The zero value does not.
type Fencing struct {
	// Counters are the counter keys, one for each lock key.
	Counters []string
	// Proposal is the lowest number that the counters may take: positive and
	// below 2^53.
	Proposal int64
	// TTL is how long a counter outlives its last change.
	TTL time.Duration
}

// Acquire gives the keys to the token for ttl, all or none. A key that holds
// the token already counts as free.
func Acquire(keys []string, token string, ttl time.Duration, fencing Fencing) *Call {
	var call *Call
	if fencing.Proposal == 0 {
		call = newCall(acquire, keys, nil, 3)
		call.add(token, ttl.Milliseconds(), 0)
	} else {
		call = newCall(acquire, keys, fencing.Counters, 4)
		call.add(token, ttl.Milliseconds(), fencing.Proposal, fencing.TTL.Milliseconds())
	}
	call.Grants = true
	call.settable = len(keys) == 1 && fencing.Proposal == 0
	return call
}

// PlainFirst lets the plain SET of the Redis page go before an [Acquire] or
// [AcquireNew] of one key without fencing, and leaves other calls as they are.
// For a free key it does what the script does in half of the node's time. For
// another it changes nothing, and the script can say why.
func (c *Call) PlainFirst() *Call {
	c.Plain = c.settable
	return c
}

// AppendSet appends the arguments of the SET of a [Call.Plain] call.
func (c *Call) AppendSet(args []any) []any {
	key, token, ms := c.Args[1], c.Args[2], c.Args[3]
	return append(args, key, token, "NX", "PX", ms)
}

// AcquireAgain is [Acquire] for a token that must hold all the keys already: it
// cannot bring back what was released meanwhile.
func AcquireAgain(keys []string, token string, ttl time.Duration, fencing Fencing) *Call {
	call := acquireOnly("again", keys, token, ttl, fencing)
	call.Held, call.settable = true, false
	return call
}

// Refill is [Acquire] for a node that has lost the keys of a lock that a quorum
// has just renewed.
func Refill(keys []string, token string, ttl time.Duration, fencing Fencing) *Call {
	call := Acquire(keys, token, ttl, fencing)
	call.Held = true
	return call
}

// AcquireNew is [Acquire] for a token that might not be unique: a key that
// holds it already counts as held.
func AcquireNew(keys []string, token string, ttl time.Duration, fencing Fencing) *Call {
	return acquireOnly("new", keys, token, ttl, fencing)
}

func acquireOnly(when string, keys []string, token string, ttl time.Duration, fencing Fencing) *Call {
	call := Acquire(keys, token, ttl, fencing)
	if fencing.Proposal == 0 {
		call.add(0) // in the place of the counters' TTL
	}
	return call.add(when)
}

// Renew begins the TTL of the keys anew, if all of them hold the token.
func Renew(keys []string, token string, ttl time.Duration) *Call {
	call := newCall(renew, keys, nil, 2).add(token, ttl.Milliseconds())
	call.Prolongs = true
	return call
}

// Release deletes those of the keys that hold the token. If announce is set,
// each deletion is published on the key's channel.
func Release(keys []string, token string, announce bool) *Call {
	flag := 0
	if announce {
		flag = 1
	}
	return newCall(release, keys, nil, 2).add(token, flag)
}

// Linger makes those of the keys that hold the token end after rest, rounded
// up to a millisecond, and announces it: those who wait learn of the new end.
// Its reply is that of [Release].
func Linger(keys []string, token string, rest time.Duration) *Call {
	ms := (rest + time.Millisecond - 1).Milliseconds()
	return newCall(release, keys, nil, 3).add(token, 1, ms)
}

// Confirm raises the counters to number, if all keys hold the token and the node
// has not voted for that number, or a higher one, before.
func Confirm(keys []string, token string, counters []string, number int64, ttl time.Duration) *Call {
	return newCall(confirm, keys, counters, 3).add(token, number, ttl.Milliseconds())
}

// ConfirmReturned is [Confirm] for a node that has returned number itself.
func ConfirmReturned(keys []string, token string, counters []string, number int64, ttl time.Duration) *Call {
	return newCall(confirm, keys, counters, 4).add(token, number, ttl.Milliseconds(), "returned")
}

// headSize and argSize estimate RESP framing: the command, hash and key count;
// and the length prefix around each argument.
const (
	headSize = 80
	argSize  = 8
)

func newCall(script *Script, keys, counters []string, argc int) *Call {
	n := len(keys) + len(counters)
	call := &Call{Script: script, Args: make([]any, 0, 1+n+argc), Size: headSize}
	call.add(n)
	for _, key := range keys {
		call.add(key)
	}
	for _, key := range counters {
		call.add(key)
	}
	return call
}

func (c *Call) add(args ...any) *Call {
	for _, arg := range args {
		c.Size += argSize
		if s, ok := arg.(string); ok {
			c.Size += len(s)
		}
	}
	c.Args = append(c.Args, args...)
	return c
}
