package scripts_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// A supply of bytes from a fuzzer becomes a reply, any of those that redigo can
// return or put into an array: nil, int64, []byte, string, redis.Error, []any.
type supply []byte

func (s *supply) next() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *supply) take(n int) []byte {
	n = min(n, len(*s))
	taken := (*s)[:n]
	*s = (*s)[n:]
	return taken
}

func (s *supply) reply(depth int) any {
	const kinds = 7
	switch kind := s.next() % kinds; kind {
	case 0:
		return nil
	case 1: // most of what is legal is small
		return int64(int8(s.next()))
	case 2:
		var b [8]byte
		copy(b[:], s.take(8))
		return int64(binary.BigEndian.Uint64(b[:]))
	case 3:
		return s.take(int(s.next()))
	case 4:
		return string(s.take(int(s.next())))
	case 5:
		return redis.Error(s.take(int(s.next())))
	default:
		elements := []any{}
		for range s.next() % 8 {
			if depth > 0 {
				elements = append(elements, s.reply(depth-1))
			}
		}
		return elements
	}
}

// seed has one of each kind, and what is legal and nearly so.
func seed(f *testing.F) {
	f.Helper()
	for _, s := range []string{
		"", "\x00", // nil
		"\x01\x00", "\x01\x01", "\x01\xff", "\x01\x02", "\x01\xfe", "\x01\x7f", // small integers
		"\x02\x00\x1f\xff\xff\xff\xff\xff\xff",                     // 2^53-1
		"\x02\x00\x20\x00\x00\x00\x00\x00\x00",                     // 2^53
		"\x02\x7f\xff\xff\xff\xff\xff\xff\xff",                     // the largest
		"\x02\x80\x00\x00\x00\x00\x00\x00\x00",                     // the smallest
		"\x03\x02OK", "\x04\x02OK", "\x05\x07ERR why", "\x041\x00", // texts
		"\x06\x00",                                             // an empty array
		"\x06\x02\x01\x05\x01\x01",                             // a refusal
		"\x06\x02\x01\xff\x01\x01",                             // for ever
		"\x06\x03\x01\x00\x01\x01\x01\x02",                     // of two keys
		"\x06\x02\x01\x05\x01\x00", "\x06\x02\x01\xfe\x01\x01", // nearly
		"\x06\x02\x01\x05\x05\x03ERR", "\x06\x02\x06\x01\x00\x00", // errors and arrays inside
		"\x06\x02\x02\x00\x00\x08\x63\x7b\xd0\x5a\xf6\x01\x01", // the longest wait, and one more
		"\x06\x02\x02\x00\x00\x08\x63\x7b\xd0\x5a\xf7\x01\x01",
	} {
		f.Add([]byte(s), uint8(2))
	}
}

// requireRefused checks what is said about a reply that is not legal.
func requireRefused(t *testing.T, err error, script string) {
	t.Helper()
	require.ErrorContains(t, err, "unexpected reply to the "+script+" script: ")
	require.NotContains(t, err.Error(), "\n", "errors are one line")
	require.Less(t, len(err.Error()), 1024, "errors stay short whatever a node answers")
}

// encodeAcquired is what a node must have answered.
func encodeAcquired(a scripts.Acquired) any {
	if a.Granted {
		return a.Fence
	}
	left := int64(a.Wait / time.Millisecond)
	if a.Wait == scripts.Forever {
		left = -1
	}
	silent := int64(0)
	if a.Silent {
		silent = 1
	}
	reply := []any{left, silent}
	for _, i := range a.Held {
		reply = append(reply, int64(i)+1)
	}
	return reply
}

// A call whose plain SET went first has two replies; but for OK it is read as the
// script's.
func FuzzParsePlain(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte, _ uint8) {
		s := supply(data)
		reply := s.reply(3)
		plain, err := scripts.ParsePlain(reply)
		if reply == any("OK") {
			require.NoError(t, err)
			require.Equal(t, scripts.Acquired{Granted: true}, plain)
			return
		}
		acquired, asScript := scripts.ParseAcquire(reply, 1)
		require.Equal(t, asScript == nil, err == nil)
		require.Equal(t, acquired, plain)
	})
}

func FuzzParseAcquire(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte, keys uint8) {
		s := supply(data)
		reply := s.reply(3)
		acquired, err := scripts.ParseAcquire(reply, int(keys))
		if err != nil {
			requireRefused(t, err, "acquire")
			require.Zero(t, acquired, "an error comes with nothing that could be taken for a vote")
			return
		}
		if acquired.Granted {
			require.GreaterOrEqual(t, acquired.Fence, int64(0))
			require.Less(t, acquired.Fence, limit)
			require.Zero(t, acquired.Wait)
			require.Empty(t, acquired.Held)
			require.False(t, acquired.Silent)
		} else {
			require.Zero(t, acquired.Fence)
			require.GreaterOrEqual(t, acquired.Wait, time.Duration(0))
			require.NotEmpty(t, acquired.Held)
			require.LessOrEqual(t, len(acquired.Held), int(keys))
			for _, i := range acquired.Held {
				require.GreaterOrEqual(t, i, 0)
				require.Less(t, i, int(keys))
			}
		}
		require.Equal(t, reply, encodeAcquired(acquired), "something got lost on the way")
	})
}

func FuzzParseRenew(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte, _ uint8) {
		s := supply(data)
		reply := s.reply(3)
		hold, err := scripts.ParseRenew(reply)
		if err != nil {
			requireRefused(t, err, "renew")
			require.NotEqual(t, scripts.Ours, hold, "an error must not look like a renewal")
			return
		}
		want, legal := map[any]scripts.Hold{int64(1): scripts.Ours, int64(0): scripts.Missing, int64(-1): scripts.Others}[reply]
		require.True(t, legal, "%#v", reply)
		require.Equal(t, want, hold)
	})
}

func FuzzParseRelease(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte, keys uint8) {
		s := supply(data)
		reply := s.reply(3)
		deleted, err := scripts.ParseRelease(reply, int(keys))
		if err != nil {
			requireRefused(t, err, "release")
			require.Zero(t, deleted)
			return
		}
		require.Equal(t, reply, int64(deleted))
		require.GreaterOrEqual(t, deleted, 0)
		require.LessOrEqual(t, deleted, int(keys))
	})
}

func FuzzParseConfirm(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte, _ uint8) {
		s := supply(data)
		reply := s.reply(3)
		confirmed, err := scripts.ParseConfirm(reply)
		if err != nil {
			requireRefused(t, err, "confirm")
			require.False(t, confirmed)
			return
		}
		require.Equal(t, map[bool]int64{true: 1, false: 0}[confirmed], reply)
	})
}

func TestWhateverAcquireMayAnswerIsParsed(t *testing.T) {
	for range 2000 {
		keys := 1 + rand.IntN(128)
		want := scripts.Acquired{Granted: rand.IntN(2) == 0}
		if want.Granted {
			want.Fence = rand.Int64N(limit)
		} else {
			want.Wait = time.Duration(rand.Int64N(math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
			if rand.IntN(4) == 0 {
				want.Wait = scripts.Forever
			}
			want.Held = rand.Perm(keys)[:1+rand.IntN(keys)]
			want.Silent = rand.IntN(2) == 0
		}
		got, err := scripts.ParseAcquire(encodeAcquired(want), keys)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestRepliesAtTheEdges(t *testing.T) {
	const longest = math.MaxInt64/int64(time.Millisecond) - 1
	for _, test := range []struct {
		name  string
		reply any
		keys  int
		want  scripts.Acquired
		err   string // the end of the error
	}{
		{name: "no fencing", reply: int64(0), keys: 1, want: granted(0)},
		{name: "the largest number", reply: limit - 1, keys: 1, want: granted(limit - 1)},
		{name: "a number that Lua cannot have counted", reply: limit, keys: 1, err: ": 9007199254740992"},
		{name: "a negative number", reply: int64(-1), keys: 1, err: ": -1"},
		{name: "a holder that is gone in this millisecond", reply: []any{int64(0), int64(1), int64(1)}, keys: 1, want: refused(0, 0)},
		{name: "a holder for ever", reply: []any{int64(-1), int64(1), int64(1)}, keys: 1, want: refused(scripts.Forever, 0)},
		{name: "the longest wait", reply: []any{longest, int64(1), int64(1)}, keys: 1, want: refused(time.Duration(longest)*time.Millisecond, 0)},
		{name: "a wait that would overflow", reply: []any{longest + 1, int64(1), int64(1)}, keys: 1, err: "array of 3"},
		{name: "a TTL that PTTL reports for no key", reply: []any{int64(-2), int64(1), int64(1)}, keys: 1, err: "array of 3"},
		{name: "every key held", reply: []any{int64(5), int64(1), int64(1), int64(2)}, keys: 2, want: refused(5*time.Millisecond, 0, 1)},
		{name: "a refusal without a key", reply: []any{int64(5), int64(0)}, keys: 1, err: "array of 2"},
		{name: "more keys than were asked for", reply: []any{int64(5), int64(1), int64(1), int64(1)}, keys: 1, err: "array of 4"},
		{name: "a position before the first", reply: []any{int64(5), int64(1), int64(0)}, keys: 2, err: "array of 3"},
		{name: "a position after the last", reply: []any{int64(5), int64(1), int64(3)}, keys: 2, err: "array of 3"},
		{name: "a position that is a text", reply: []any{int64(5), int64(1), []byte("1")}, keys: 2, err: "array of 3"},
		{name: "a holder that announces", reply: []any{int64(5), int64(0), int64(1)}, keys: 1, want: announcing(5*time.Millisecond, 0)},
		{name: "neither silent nor not", reply: []any{int64(5), int64(2), int64(1)}, keys: 1, err: "array of 3"},
		{name: "a silence that is a text", reply: []any{int64(5), []byte("1"), int64(1)}, keys: 1, err: "array of 3"},
		{name: "an empty array", reply: []any{}, keys: 1, err: "array of 0"},
		{name: "nothing", reply: nil, keys: 1, err: "<nil>"},
		{name: "OK", reply: "OK", keys: 1, err: `"OK"`},
		{name: "a page of HTML", reply: []byte("<html>\n" + strings.Repeat("x", 1000)), keys: 1, err: `"<html>\n` + strings.Repeat("x", 57) + `"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := scripts.ParseAcquire(test.reply, test.keys)
			if test.err == "" {
				require.NoError(t, err)
				assert.Equal(t, test.want, got)
				return
			}
			requireRefused(t, err, "acquire")
			assert.True(t, strings.HasSuffix(err.Error(), test.err), "%v", err)
			assert.Zero(t, got)
		})
	}
}

func TestAReleaseOfMoreKeysThanWereNamedIsRefused(t *testing.T) {
	deleted, err := scripts.ParseRelease(int64(2), 2)
	require.NoError(t, err)
	assert.Equal(t, 2, deleted)
	_, err = scripts.ParseRelease(int64(3), 2)
	requireRefused(t, err, "release")
}
