package scripts_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/scripts"
)

func inspect(names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call { return scripts.Inspect(k(names...)) }
}

func TestInspect(t *testing.T) {
	held := func(value string, ttl time.Duration) scripts.Inspected {
		return scripts.Inspected{Held: true, Value: value, TTL: ttl}
	}
	const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	long := strings.Repeat("x", 257)
	play(t, []scene{
		{
			name: "says that a key is free",
			call: inspect("a"),
			want: []scripts.Inspected{{}},
		},
		{
			name:  "says who holds a key, and for how long",
			given: state{"a": mine + " for 1h0m0s"},
			call:  inspect("a"),
			want:  []scripts.Inspected{held(mine, hour)},
		},
		{
			name:  "answers for several keys in their order",
			given: state{"a": "other for ever", "c": mine + " for 10m0s"},
			call:  inspect("c", "b", "a"),
			want:  []scripts.Inspected{held(mine, 10*time.Minute), {}, held("other", scripts.Forever)},
		},
		{
			name:  "takes an empty value for a holder",
			given: state{"a": " for 1h0m0s"},
			call:  inspect("a"),
			want:  []scripts.Inspected{held("", hour)},
		},
		{
			name:  "does not let a key of the wrong type hide the others",
			given: state{"a": alist, "b": mine + " for 1h0m0s"},
			call:  inspect("a", "b"),
			want:  []scripts.Inspected{{Err: errors.New(wrongType)}, held(mine, hour)},
		},
		{
			name:  "does not send what is too long for a token",
			given: state{"a": long + " for 1h0m0s"},
			call:  inspect("a"),
			want:  []scripts.Inspected{{Err: errors.New("ERR a value of 257 bytes is no token")}},
		},
	})
}

func TestInspectReadsTheFencingCounter(t *testing.T) {
	onNodes(t, func(n *node) {
		for counter, want := range map[string]int64{
			"17":                                17,
			fmt.Sprint(limit - 1):               limit - 1,
			fmt.Sprint(limit):                   0, // no node of ours has given that
			"nan":                               0,
			"":                                  0,
			"1e3":                               0,
			strings.Repeat("9", 400):            0,
			"-1":                                0,
			"12345678901234567890123456789012 ": 0,
		} {
			n := n.forTest(n.t)
			key := n.keys("a")[0]
			n.do("SET", "redlock:fence:"+key, counter)
			reply, err := n.eval(n.conn, scripts.Inspect([]string{key}))
			n.do("DEL", "redlock:fence:"+key)
			require.NoError(n.t, err)
			got, err := scripts.ParseInspect(reply, 1)
			require.NoError(n.t, err)
			assert.Equal(n.t, []scripts.Inspected{{Fence: want}}, got, "counter %q", counter)
		}
	})
}

// scanAll reads all pages.
func scanAll(n *node, pattern string) []string {
	n.t.Helper()
	var all []string
	for cursor := scripts.FirstPage; ; {
		reply, err := n.eval(n.conn, scripts.Scan(cursor, pattern, 10))
		require.NoError(n.t, err)
		next, found, err := scripts.ParseScan(reply)
		require.NoError(n.t, err)
		all = append(all, found...)
		if next == scripts.FirstPage {
			slices.Sort(all)
			return slices.Compact(all)
		}
		cursor = next
	}
}

func TestScanFindsEveryKeyThatCanBeALocks(t *testing.T) {
	onNodes(t, func(n *node) {
		n = n.forTest(n.t)
		want := n.keys("a", "b", "c*", strings.Repeat("l", 800))
		for _, key := range append(n.keys(strings.Repeat("x", 1024)), want...) {
			n.do("SET", key, mine)
		}
		slices.Sort(want)
		assert.Equal(n.t, want, scanAll(n, n.prefix+"*"))
		assert.Equal(n.t, n.keys("c*"), scanAll(n, n.prefix+`c\*`))

		reserved := "redlock:fence:" + n.prefix + "a"
		n.do("SET", reserved, 1)
		defer n.do("DEL", reserved)
		assert.Empty(n.t, scanAll(n, reserved))
	})
}

func TestAPageThatIsTooLargeFailsInsteadOfTheConnection(t *testing.T) {
	onNodes(t, func(n *node) {
		if n.embedded == nil {
			n.t.Skip("a real node pays heed to the count")
		}
		n = n.forTest(n.t)
		for i := range 600 {
			n.do("SET", n.keys(fmt.Sprint(i) + strings.Repeat("x", 900))[0], mine)
		}
		_, err := n.eval(n.conn, scripts.Scan(scripts.FirstPage, n.prefix+"*", 10))
		require.ErrorContains(n.t, err, "page of the listing is too large")
	})
}

func TestAnnouncePublishesTheOwnerOnTheChannelOfEachKey(t *testing.T) {
	onNodes(t, func(n *node) {
		n = n.forTest(n.t)
		sub := redis.PubSubConn{Conn: n.dial()}
		keys := n.keys("a", "b")
		for _, key := range keys {
			require.NoError(n.t, sub.Subscribe("redlock:renewed:"+key))
			require.IsType(n.t, redis.Subscription{}, sub.Receive())
		}
		_, err := n.eval(n.conn, scripts.Announce(keys, "renewed", "me"))
		require.NoError(n.t, err)
		for _, key := range keys {
			assert.Equal(n.t, redis.Message{Channel: "redlock:renewed:" + key, Data: []byte("me")}, sub.Receive())
		}

		mute, unmute := n.muted()
		defer unmute()
		_, err = n.eval(mute, scripts.Announce(keys, "renewed", "me"))
		require.NoError(n.t, err, "who may not publish is not refused")
	})
}

func FuzzParseInspect(f *testing.F) {
	seed(f)
	f.Add([]byte("\x06\x03\x03\x01a\x01\x05\x01\x00"), uint8(1))                          // a legal one
	f.Add([]byte("\x06\x06\x03\x01a\x01\xff\x01\x07\x03\x01b\x01\xfd\x01\x00"), uint8(2)) // for ever, and in trouble
	f.Add([]byte("\x06\x03\x03\x01a\x01\xfe\x01\x07"), uint8(1))                          // free
	f.Fuzz(func(t *testing.T, data []byte, keys uint8) {
		s := supply(data)
		reply := s.reply(2)
		all, err := scripts.ParseInspect(reply, int(keys))
		if err != nil {
			require.Nil(t, all)
			requireRefused(t, err, "inspect")
			return
		}
		require.Len(t, all, int(keys))
		elements := reply.([]any)
		for i, one := range all {
			require.GreaterOrEqual(t, one.TTL, time.Duration(0))
			require.True(t, one.Fence >= 0 && one.Fence < limit)
			require.False(t, one.Held && one.Err != nil)

			left := int64(one.TTL / time.Millisecond)
			switch {
			case one.Err != nil:
				left = -3
			case !one.Held:
				left = -2
			case one.TTL == scripts.Forever:
				left = -1
			}
			require.Equal(t, []any{left, one.Fence}, elements[3*i+1:3*i+3], "something got lost on the way")
			if one.Held {
				require.Equal(t, elements[3*i], []byte(one.Value))
			} else {
				require.Empty(t, one.Value)
				require.Zero(t, one.TTL)
			}
		}
	})
}

func FuzzParseScan(f *testing.F) {
	seed(f)
	f.Add([]byte("\x06\x02\x03\x010\x03\x01a"), uint8(0)) // a legal one
	f.Fuzz(func(t *testing.T, data []byte, _ uint8) {
		s := supply(data)
		reply := s.reply(2)
		cursor, names, err := scripts.ParseScan(reply)
		if err != nil {
			require.Nil(t, names)
			requireRefused(t, err, "scan")
			return
		}
		require.NotEmpty(t, cursor)
		again := []any{[]byte(cursor)}
		for _, name := range names {
			again = append(again, []byte(name))
		}
		require.Equal(t, again, reply, "something got lost on the way")
	})
}
