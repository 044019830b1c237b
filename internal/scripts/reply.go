package scripts

import (
	"fmt"
	"time"
)

// Forever is the [Acquired.Wait] of a holder whose key never expires.
const Forever time.Duration = 1<<63 - 1

// Acquired is a node's answer to [Acquire].
type Acquired struct {
	Granted bool
	// Fence is the fencing counter after the vote, below 2^53; 0 without
	// fencing.
	Fence int64
	// Wait is how long the holder's TTL still runs, the longest of several;
	// [Forever] if one never ends. Only for refused votes.
	Wait time.Duration
	// Held lists the positions of the keys that others hold. Only for refused
	// votes.
	Held []int
	// Silent says that a holder's token is not of our making, so that nothing
	// will be announced when it is released. Only for refused votes.
	Silent bool
}

// maxFence is where the exact numbers of Lua end. No script answers with more,
// and one node that did would exhaust the counters of all: the largest number
// of a quorum is what the others are raised to.
const maxFence = 1 << 53

// ParseAcquire reads the reply to [Acquire] of keys keys.
func ParseAcquire(reply any, keys int) (Acquired, error) {
	switch r := reply.(type) {
	case int64:
		if r >= 0 && r < maxFence {
			return Acquired{Granted: true, Fence: r}, nil
		}
	case []any:
		return parseRefusal(r, keys)
	}
	return Acquired{}, unexpected(acquire, reply)
}

// ParsePlain reads the reply to a call that is [Call.Plain]: to its SET, or to
// its script.
func ParsePlain(reply any) (Acquired, error) {
	if reply == "OK" {
		return Acquired{Granted: true}, nil
	}
	return ParseAcquire(reply, 1)
}

func parseRefusal(reply []any, keys int) (Acquired, error) {
	if len(reply) < 3 || len(reply) > keys+2 {
		return Acquired{}, unexpected(acquire, reply)
	}
	refused := Acquired{Held: make([]int, 0, len(reply)-2)}
	switch left, ok := reply[0].(int64); {
	case ok && left == -1:
		refused.Wait = Forever
	case ok && left >= 0 && left < int64(Forever/time.Millisecond):
		refused.Wait = time.Duration(left) * time.Millisecond
	default:
		return Acquired{}, unexpected(acquire, reply)
	}
	switch reply[1] {
	case int64(0):
	case int64(1):
		refused.Silent = true
	default:
		return Acquired{}, unexpected(acquire, reply)
	}
	for _, element := range reply[2:] {
		position, ok := element.(int64)
		if !ok || position < 1 || position > int64(keys) {
			return Acquired{}, unexpected(acquire, reply)
		}
		refused.Held = append(refused.Held, int(position)-1)
	}
	return refused, nil
}

// Hold is what a node says of keys that should hold a token.
type Hold uint8

// The holds that [Renew] tells apart.
const (
	Ours    Hold = iota // every key holds the token
	Missing             // a key is gone, none holds something else
	Others              // a key holds something else
)

// ParseRenew reads the reply to [Renew].
func ParseRenew(reply any) (Hold, error) {
	switch reply {
	case int64(1):
		return Ours, nil
	case int64(0):
		return Missing, nil
	case int64(-1):
		return Others, nil
	}
	return Missing, unexpected(renew, reply)
}

// ParseRelease reads the reply to [Release] of keys keys: how many of them
// were deleted.
func ParseRelease(reply any, keys int) (int, error) {
	if deleted, ok := reply.(int64); ok && deleted >= 0 && deleted <= int64(keys) {
		return int(deleted), nil
	}
	return 0, unexpected(release, reply)
}

// ParseConfirm reads the reply to [Confirm]: whether the keys hold the token
// and the counters are the number now.
func ParseConfirm(reply any) (bool, error) {
	switch reply {
	case int64(1):
		return true, nil
	case int64(0):
		return false, nil
	}
	return false, unexpected(confirm, reply)
}

// unexpected shows enough of the reply to find out what answered, and no more:
// it may be large, and it is not ours.
func unexpected(script *Script, reply any) error {
	const most = 64
	text := fmt.Sprintf("%T", reply)
	switch r := reply.(type) {
	case int64:
		text = fmt.Sprintf("%d", r)
	case string:
		text = fmt.Sprintf("%.*q", most, r)
	case []byte:
		text = fmt.Sprintf("%.*q", most, r)
	case []any:
		text = fmt.Sprintf("array of %d", len(r))
	}
	return fmt.Errorf("unexpected reply to the %s script: %s", script.name, text)
}
