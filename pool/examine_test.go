package pool_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

// examined makes one node and its pool in a bubble.
func examined(t *testing.T, options ...pool.Option) (*redlocktest.Node, *pool.Pool) {
	t.Helper()
	c := redlocktest.StartPiped(t, 1)
	all := append([]pool.Option{pool.WithDialer(c.Dial), pool.WithClock(clock.Monotonic()), pool.WithTimeout(timeout)}, options...)
	p, err := pool.New(c.Addrs()[0], all...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return c.Node(0), p
}

func TestExamineTellsWhatANodeSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := examined(t, pool.WithRestartGuard(time.Hour))
		n.SetDelay(10 * time.Millisecond)
		n.SetError("NOPERM", "PUBLISH")
		e, err := p.Examine(t.Context(), "channel", "chan*")
		require.NoError(t, err)
		assert.Equal(t, 10*time.Millisecond, e.RoundTrip)
		assert.Equal(t, "master", e.Info["role"])
		assert.Equal(t, map[string]string{"appendfsync": "everysec", "min-replicas-to-write": "0"}, e.Config)
		assert.Equal(t, time.Hour, e.Guard)
		require.ErrorContains(t, e.Publish, "NOPERM")
		assert.LessOrEqual(t, e.Ahead.Abs(), 10*time.Millisecond)
		for _, denied := range []error{e.InfoErr, e.ConfigErr, e.TimeErr, e.Load, e.Scan, e.Subscribe, e.Follow} {
			require.NoError(t, denied)
		}
		synctest.Wait()
		assert.Zero(t, n.Connections())
	})
}

func TestExamineIsBoundedByTheTimeoutTheContextAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := examined(t)
		n.Hang()
		start := time.Now()
		_, err := p.Examine(t.Context(), "channel", "chan*")
		require.ErrorIs(t, err, pool.ErrTimeout)
		assert.Equal(t, timeout, time.Since(start))

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = p.Examine(ctx, "channel", "chan*")
		require.Error(t, err)
		assert.Equal(t, timeout+time.Millisecond, time.Since(start))

		time.AfterFunc(time.Millisecond, func() { _ = p.Close() })
		_, err = p.Examine(t.Context(), "channel", "chan*")
		require.Error(t, err)
		assert.Equal(t, timeout+2*time.Millisecond, time.Since(start))
		_, err = p.Examine(t.Context(), "channel", "chan*")
		require.ErrorIs(t, err, pool.ErrClosed)
	})
}

func TestANodeWithOneConnectionCannotBeExamined(t *testing.T) {
	p, err := pool.Wrap("node", &redis.Pool{MaxActive: 1})
	require.NoError(t, err)
	_, err = p.Examine(t.Context(), "channel", "chan*")
	require.ErrorContains(t, err, "one connection only")
	require.NoError(t, p.Close())
}

// aTime is an answer to TIME.
func aTime(seconds, microseconds string) string { return "*2\r\n" + bulk(seconds) + bulk(microseconds) }

func TestAnAbsurdTimeIsNoTime(t *testing.T) {
	for _, answer := range []string{
		aTime("-1", "0"), aTime("1700000000", "-1"), aTime("1700000000", "1000000"),
		aTime("1700000000", "2305843009213693952"),   // a multiple of 2^64 nanoseconds
		aTime("9223372036854775807", "0"),            // wraps when a time is made of it
		aTime("9223371974719179007", "0"),            // the largest that does not
		aTime("-9223372036854775808", "0"),           // the smallest
		aTime("99999999999", "0"), aTime("1e9", "0"), // no duration is as long
		"*2\r\n$-1\r\n$-1\r\n", "*2\r\n:0\r\n$-1\r\n", // read as 0
		"*1\r\n:1\r\n", "*0\r\n", "$-1\r\n", "+OK\r\n",
	} {
		t.Run(strconv.Quote(answer), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
					if args[0] == "TIME" {
						return answer
					}
					return "+OK\r\n"
				}})
				e, err := server.rig(t).Examine(t.Context(), "channel", "chan*")
				require.NoError(t, err)
				require.Error(t, e.TimeErr)
				require.Zero(t, e.Ahead)
			})
		})
	}
}

// Whatever a node answers, an examination tells what it said or why that is not
// known, in bounded time.
func FuzzExamine(f *testing.F) {
	legal := bulk("# Server\r\nredis_version:7.0.15\r\nrole:master\r\n")
	config := "*2\r\n" + bulk("appendfsync") + bulk("everysec")
	for _, answers := range [][3]string{
		{aTime("946684800", "5"), legal, config},
		{aTime("1700000000", "2305843009213693952"), legal, config},
		{aTime("9223372036854775807", "0"), bulk("a:b:c\r\r\n:\nno field"), "*0\r\n"},
		{aTime("-1", "-1"), "$-1\r\n", "*2\r\n$-1\r\n$-1\r\n"},
		{"-NOPERM no\r\n", "-NOPERM no\r\n", "-NOPERM no\r\n"},
		{":1\r\n", ":1\r\n", "*1\r\n*0\r\n"},
		{":1\r\n:1\r\n", "", ""}, // one answer too many
		{"*1000000000\r\n", "$1000000000\r\n", "?"},
	} {
		f.Add(answers[0], answers[1], answers[2])
	}
	f.Fuzz(func(t *testing.T, told, info, config string) {
		synctest.Test(t, func(t *testing.T) {
			server := serve(t, &fake{handle: func(_ int, _ net.Conn, args []string) string {
				switch args[0] {
				case "TIME":
					return told
				case "CONFIG":
					return config
				case "INFO":
					return info
				}
				return "+OK\r\n"
			}, info: func(int) string { return info }})
			r := server.rig(t)
			start := time.Now()
			e, err := r.Examine(t.Context(), "channel", "chan*")
			require.LessOrEqual(t, time.Since(start), 5*timeout, "connecting may take four")
			require.NoError(t, r.Close())
			if err != nil {
				require.Nil(t, e)
				return
			}
			said := told + info + config // an answer too many is taken for the next
			require.Zero(t, time.Since(start), "or the clock has moved on, and nothing below is exact")
			if e.TimeErr == nil {
				theirs := start.Add(e.Ahead)
				require.Positive(t, theirs.Unix())
				require.Regexp(t, fmt.Sprintf(`[:\n][+-]?0*%d\r\n`, theirs.Unix()), said)
				if us := theirs.Nanosecond() / 1000; us > 0 || !strings.Contains(said, "-1\r\n") { // nil is read as 0
					require.Regexp(t, fmt.Sprintf(`[:\n][+-]?0*%d\r\n`, us), said)
				}
			} else {
				require.Zero(t, e.Ahead, "or somebody could reckon with it")
			}
			require.Equal(t, e.InfoErr == nil, e.Info != nil)
			for field, value := range e.Info {
				require.Contains(t, said, field+":"+value)
				require.NotContains(t, field, ":")
				require.NotContains(t, value, "\n")
				require.False(t, strings.HasSuffix(value, "\r"))
			}
			for setting, value := range e.Config {
				require.Contains(t, []string{"appendfsync", "min-replicas-to-write"}, setting)
				require.Contains(t, said, value)
			}
		})
	})
}
