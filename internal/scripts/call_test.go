package scripts_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// A tape is a connection that records what is written to it.
type tape struct {
	net.Conn
	bytes.Buffer
}

func (t *tape) Write(p []byte) (int, error) { return t.Buffer.Write(p) }
func (t *tape) Read([]byte) (int, error)    { panic("nobody reads a tape") }

// wireSize returns how many bytes redigo sends for a call.
func wireSize(t *testing.T, call *scripts.Call) int {
	t.Helper()
	var tape tape
	conn := redis.NewConn(&tape, 0, 0)
	hash := strings.Repeat("f", 40)
	require.NoError(t, conn.Send("EVALSHA", append([]any{hash}, call.Args...)...))
	require.NoError(t, conn.Flush())
	return tape.Len()
}

func randomKeys(longest int) []string {
	keys := make([]string, 1+rand.IntN(128))
	for i := range keys {
		keys[i] = strings.Repeat("k", 1+rand.IntN(longest))
	}
	return keys
}

func randomCall() *scripts.Call {
	longest := []int{16, 200, 2000}[rand.IntN(3)]
	keys, counters := randomKeys(longest), randomKeys(longest)
	token := strings.Repeat("t", 22+rand.IntN(100))
	ttl := time.Duration(rand.Int64N(int64(366 * 24 * time.Hour)))
	number := 1 + rand.Int64N(limit-1)
	all := []*scripts.Call{
		scripts.Acquire(keys, token, ttl, scripts.Fencing{}),
		scripts.Acquire(keys, token, ttl, scripts.Fencing{Counters: counters, Proposal: number, TTL: 2 * ttl}),
		scripts.Renew(keys, token, ttl),
		scripts.Release(keys, token, rand.IntN(2) == 0),
		scripts.Confirm(keys, token, counters, number, ttl),
		scripts.ConfirmReturned(keys, token, counters, number, ttl),
		scripts.Refill(keys, token, ttl, scripts.Fencing{Counters: counters, Proposal: number, TTL: ttl}),
	}
	return all[rand.IntN(len(all))]
}

// Size decides whether a call fits into a socket's buffer, so an estimate that
// is far too low could block a caller. Framing is counted as 8 bytes an argument
// and the digits of numbers not at all: a byte an argument and 64 are allowed.
func TestTheSizeOfACallIsAboutWhatGoesOverTheWire(t *testing.T) {
	for range 100 {
		call := randomCall()
		sent, args := wireSize(t, call), len(call.Args)
		require.GreaterOrEqual(t, call.Size, sent-64-args, "%s with %d arguments", call.Script.Name(), args)
		require.LessOrEqual(t, call.Size, sent+64+2*args, "%s with %d arguments", call.Script.Name(), args)
	}
}

func TestATypicalCallIsNotTakenForSmallerByMoreThanItsDigits(t *testing.T) {
	keys, token := []string{"orders:4711"}, strings.Repeat("t", 40)
	counters := []string{"redlock:fence:orders:4711"}
	for _, call := range []*scripts.Call{
		scripts.Acquire(keys, token, 10*time.Second, scripts.Fencing{}),
		scripts.Acquire(keys, token, 10*time.Second, scripts.Fencing{Counters: counters, Proposal: 1_700_000_000_000_000, TTL: 24 * time.Hour}),
		scripts.Renew(keys, token, 10*time.Second),
		scripts.Release(keys, token, true),
		scripts.Confirm(keys, token, counters, 1_700_000_000_000_000, 24*time.Hour),
	} {
		assert.InDelta(t, wireSize(t, call), call.Size, 32, call.Script.Name())
	}
}

// One call is sent to every node, each of which puts a hash in front.
func TestTheArgumentsOfACallHaveNoRoomForMore(t *testing.T) {
	for range 100 {
		call := randomCall()
		assert.Len(t, call.Args, cap(call.Args), "an append would write into what other nodes are sent")
	}
}

// A minimum is not shortened by the precision of Redis.
func TestWhatIsLeftOfAMinimumHoldIsRoundedUp(t *testing.T) {
	for rest, ms := range map[time.Duration]int64{
		time.Nanosecond: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour - 1: 3_600_000,
	} {
		args := scripts.Linger([]string{"key"}, "token", rest).Args
		assert.Equal(t, ms, args[len(args)-1], rest)
	}
}
