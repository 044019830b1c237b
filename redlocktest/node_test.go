package redlocktest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlocktest"
)

func TestAKeyExpiresOnTheNanosecondInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		conn := dial(t, c, 0)
		do(t, conn, "SET", "key", "value", "PX", 10_000)
		time.Sleep(10*time.Second - 1)
		assert.Equal(t, []byte("value"), do(t, conn, "GET", "key"))
		time.Sleep(time.Nanosecond)
		assert.Nil(t, do(t, conn, "GET", "key"))
		assert.Empty(t, c.Node(0).Keys())
	})
}

func TestAKeyExpiresByItselfInRealTime(t *testing.T) {
	c := redlocktest.Start(t, 1)
	begin := time.Now()
	do(t, dial(t, c, 0), "SET", "key", "value", "PX", 30)
	eventually(t, func() bool { return len(c.Node(0).Keys()) == 0 }, "the key expires")
	assert.GreaterOrEqual(t, time.Since(begin), 30*time.Millisecond)
}

func TestTheDataCanBeReadAndChangedDirectly(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		n.Set("b", "forever", 0)
		n.Set("a", "for a minute", time.Minute)
		assert.Equal(t, []string{"a", "b"}, n.Keys())

		value, ttl, ok := n.Get("a")
		assert.True(t, ok)
		assert.Equal(t, "for a minute", value)
		assert.Greater(t, ttl, 50*time.Second)
		assert.LessOrEqual(t, ttl, time.Minute)

		value, ttl, ok = n.Get("b")
		assert.True(t, ok)
		assert.Equal(t, "forever", value)
		assert.Zero(t, ttl)

		_, _, ok = n.Get("c")
		assert.False(t, ok)
		assert.True(t, n.Delete("a"))
		assert.False(t, n.Delete("a"))
		assert.Equal(t, []byte("forever"), do(t, dial(t, c, 0), "GET", "b"))
	})
}

func TestATTLIsNeverRoundedDownToNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := redlocktest.StartPiped(t, 1).Node(0)
		n.Set("key", "value", 1)
		time.Sleep(time.Millisecond - 1)
		_, ttl, ok := n.Get("key")
		assert.True(t, ok)
		assert.Equal(t, time.Millisecond, ttl)
		time.Sleep(time.Nanosecond)
		_, _, ok = n.Get("key")
		assert.False(t, ok)
	})
}

func TestDirectAccessIsNotCountedAndNotFailed(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		n.SetError("ERR no")
		n.SetError("ERR no", "SET", "GET", "PTTL", "MULTI", "EXEC", "DEL")
		n.SetDelay(time.Hour)
		n.Hang()
		n.Set("key", "value", 0)
		value, _, ok := n.Get("key")
		assert.True(t, ok)
		assert.Equal(t, "value", value)
		assert.Zero(t, n.Commands())

		n.Stop()
		_, _, ok = n.Get("key")
		assert.True(t, ok)
		n.FlushScripts()
		n.Set("other", "value", 0)
		assert.True(t, n.Delete("key"))
		assert.Equal(t, []string{"other"}, n.Keys())
	})
}

func TestAStoppedNodeResetsItsConnectionsAndRefusesNewOnes(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		conn := dial(t, c, 0)
		do(t, conn, "SET", "key", "value")
		c.Node(0).Stop()
		c.Node(0).Stop()
		assert.Zero(t, c.Node(0).Connections())

		_, err := conn.Receive()
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = tryDial(t, c, 0)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	})
}

func TestRestartKeepsAddressAndData(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		addr := n.Addr()
		sha, err := redis.String(dial(t, c, 0).Do("SCRIPT", "LOAD", "return 1"))
		require.NoError(t, err)
		n.Set("key", "value", time.Minute)
		n.Stop()
		require.NoError(t, n.Restart())
		assert.Equal(t, addr, n.Addr())

		conn := dial(t, c, 0)
		assert.Equal(t, []byte("value"), do(t, conn, "GET", "key"))
		_, err = conn.Do("EVALSHA", sha, 0)
		require.ErrorContains(t, err, "NOSCRIPT")
	})
}

func TestKeysGoOnExpiringWhileTheNodeIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		n := c.Node(0)
		n.Set("short", "value", 10*time.Second)
		n.Set("long", "value", time.Minute)
		n.Stop()
		time.Sleep(20 * time.Second)
		require.NoError(t, n.Restart())
		pttl, err := redis.Int64(dial(t, c, 0).Do("PTTL", "long"))
		require.NoError(t, err)
		assert.EqualValues(t, 40_000, pttl)
		assert.Equal(t, []string{"long"}, n.Keys())
	})
}

func TestRestartEmptyForgetsDataAndScripts(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		sha := do(t, conn, "SCRIPT", "LOAD", "return 1")
		do(t, conn, "SET", "key", "value")
		addr := n.Addr()

		require.NoError(t, n.RestartEmpty()) // a running node is stopped first
		_, err := conn.Receive()
		require.ErrorIs(t, err, syscall.ECONNRESET)
		assert.Equal(t, addr, n.Addr())
		assert.Empty(t, n.Keys())
		_, err = dial(t, c, 0).Do("EVALSHA", sha, 0)
		require.ErrorContains(t, err, "NOSCRIPT")
	})
}

func TestFlushScriptsForgetsScripts(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		conn := dial(t, c, 0)
		sha := do(t, conn, "SCRIPT", "LOAD", "return 1")
		assert.EqualValues(t, 1, do(t, conn, "EVALSHA", sha, 0))
		c.Node(0).FlushScripts()
		_, err := conn.Do("EVALSHA", sha, 0)
		require.ErrorContains(t, err, "NOSCRIPT")
	})
}

func info(t *testing.T, conn redis.Conn, sections ...any) map[string]string {
	t.Helper()
	text, err := redis.String(conn.Do("INFO", sections...))
	require.NoError(t, err)
	fields := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func TestInfoTellsWhoTheNodeIs(t *testing.T) {
	each(t, 2, func(s scene) {
		t, c := s.t, s.cluster
		first := info(t, dial(t, c, 0), "server")
		assert.Regexp(t, "^[0-9a-f]{40}$", first["run_id"])
		_, port, err := net.SplitHostPort(c.Node(0).Addr())
		require.NoError(t, err)
		assert.Equal(t, port, first["tcp_port"])
		assert.NotEmpty(t, first["redis_version"])
		assert.NotContains(t, first, "role")
		assert.NotEqual(t, first["run_id"], info(t, dial(t, c, 1), "SERVER")["run_id"])

		assert.Equal(t, "master", info(t, dial(t, c, 0), "replication")["role"])
		everything := info(t, dial(t, c, 0))
		assert.Equal(t, first["run_id"], everything["run_id"])
		assert.Equal(t, "master", everything["role"])

		require.NoError(t, c.Node(0).Restart())
		assert.NotEqual(t, first["run_id"], info(t, dial(t, c, 0), "server")["run_id"])
	})
}

func TestSettingsThatMatterToLocksCanBeRead(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		pair, err := redis.Strings(dial(t, c, 0).Do("CONFIG", "GET", "maxmemory-policy"))
		require.NoError(t, err)
		assert.Equal(t, []string{"maxmemory-policy", "noeviction"}, pair)
		assert.Equal(t, "noeviction", info(t, dial(t, c, 0))["maxmemory_policy"])
		assert.Empty(t, do(t, dial(t, c, 0), "CONFIG", "GET", "requirepass"))
		c.Node(0).SetError("NOPERM", "CONFIG")
		_, err = dial(t, c, 0).Do("CONFIG", "GET", "save")
		require.ErrorContains(t, err, "NOPERM")
	})
}

func TestUptimeAndTimeFollowTheNodesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		conn := dial(t, c, 0)
		time.Sleep(90 * time.Second)
		assert.Equal(t, "90", info(t, conn, "server")["uptime_in_seconds"])
		now, err := redis.Int64s(conn.Do("TIME"))
		require.NoError(t, err)
		assert.Equal(t, time.Now().UnixMicro(), now[0]*1_000_000+now[1])

		require.NoError(t, c.Node(0).Restart())
		time.Sleep(3 * time.Second)
		assert.Equal(t, "3", info(t, dial(t, c, 0), "server")["uptime_in_seconds"])
	})
}

func TestCommandsAreCountedAndThoseInsideScriptsAreNot(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		assert.Zero(t, n.Commands())
		do(t, conn, "EVAL", "redis.call('SET', KEYS[1], 'v'); return redis.call('GET', KEYS[1])", 1, "key")
		do(t, conn, "get", "key")
		do(t, conn, "GET", "key")
		assert.Equal(t, 3, n.Commands())
		assert.Equal(t, 1, n.CountOf("EVAL"))
		assert.Equal(t, 2, n.CountOf("get"))
		assert.Zero(t, n.CountOf("SET"))

		require.NoError(t, n.Restart())
		assert.Equal(t, 3, n.Commands())
	})
}

func TestConnectionsAreCountedWhileTheyLast(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		first, second := dial(t, c, 0), dial(t, c, 0)
		do(t, first, "PING")
		do(t, second, "PING")
		assert.Equal(t, 2, n.Connections())
		require.NoError(t, first.Close())
		eventually(t, func() bool { return n.Connections() == 1 }, "the client's hanging up is seen")
		do(t, second, "QUIT")
		eventually(t, func() bool { return n.Connections() == 0 }, "QUIT closes")
	})
}

func TestPipelinedCommandsAreAnsweredInOrder(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		conn := dial(t, c, 0)
		const commands = 500 // more than a connection reads ahead
		for i := range commands {
			require.NoError(t, conn.Send("ECHO", i))
		}
		require.NoError(t, conn.Flush())
		for i := range commands {
			echo, err := redis.Int(conn.Receive())
			require.NoError(t, err)
			require.Equal(t, i, echo)
		}
	})
}

func TestSubscribersAreTold(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		sub := redis.PubSubConn{Conn: dial(t, c, 0)}
		require.NoError(t, sub.Subscribe("channel"))
		assert.Equal(t, redis.Subscription{Kind: "subscribe", Channel: "channel", Count: 1}, sub.Receive())
		require.NoError(t, sub.PSubscribe("cha*"))
		assert.Equal(t, redis.Subscription{Kind: "psubscribe", Channel: "cha*", Count: 2}, sub.Receive())

		n := do(t, dial(t, c, 0), "EVAL", "return redis.call('PUBLISH', 'channel', 'hello')", 0)
		assert.EqualValues(t, 2, n)
		got := []any{sub.Receive(), sub.Receive()} // in any order: two goroutines of miniredis
		assert.ElementsMatch(t, []any{
			redis.Message{Channel: "channel", Data: []byte("hello")},
			redis.Message{Channel: "channel", Pattern: "cha*", Data: []byte("hello")},
		}, got)
	})
}

func TestASubscriberThatHangsUpIsForgotten(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		sub := redis.PubSubConn{Conn: dial(t, c, 0)}
		require.NoError(t, sub.Subscribe("channel"))
		require.NoError(t, sub.PSubscribe("cha*"))
		sub.Receive()
		n.SetError("ERR no", "UNSUBSCRIBE", "PUNSUBSCRIBE") // is no way to keep it
		require.NoError(t, sub.Close())
		eventually(t, func() bool { return n.Connections() == 0 }, "the client's hanging up is seen")
		assert.EqualValues(t, 0, do(t, dial(t, c, 0), "PUBLISH", "channel", "hello"))
	})
}

func TestASubscriberThatDoesNotReadStopsNobody(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		send(t, dial(t, c, 0), "SUBSCRIBE", "channel")
		eventually(t, func() bool { return c.Node(0).Commands() == 1 }, "it is subscribed")
		conn := dial(t, c, 0)
		text := strings.Repeat("x", 1<<20)
		for range 8 {
			assert.EqualValues(t, 1, do(t, conn, "PUBLISH", "channel", text))
		}
	})
}

func TestWordsOnALineAreACommandToo(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		conn, err := c.Dial(t.Context(), "tcp", c.Node(0).Addr())
		require.NoError(t, err)
		defer func() { assert.NoError(t, conn.Close()) }()
		_, err = io.WriteString(conn, "\r\nPING\r\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "+PONG\r\n", line)
	})
}

func TestBytesThatAreNoCommandEndTheConnection(t *testing.T) {
	for _, tc := range []struct{ name, sent, answer string }{
		{"no number", "*x\r\n", "invalid multibulk length"},
		{"too many words", "*2000000\r\n", "invalid multibulk length"},
		{"no bulk string", "*1\r\n:5\r\n", "expected '$'"},
		{"negative length", "*1\r\n$-5\r\n", "invalid bulk length"},
		{"huge length", "*1\r\n$999999999999\r\n", "invalid bulk length"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := redlocktest.StartPiped(t, 1)
				conn, err := c.Dial(t.Context(), "tcp", c.Node(0).Addr())
				require.NoError(t, err)
				_, err = io.WriteString(conn, "*0\r\n"+tc.sent)
				require.NoError(t, err)
				answer, err := io.ReadAll(conn)
				require.NoError(t, err)
				assert.Contains(t, string(answer), "-ERR Protocol error: "+tc.answer)
			})
		})
	}
}

func TestNodesStandConcurrentUse(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 25 {
					conn, err := tryDial(t, c, 0)
					if err != nil {
						continue
					}
					_, _ = conn.Do("SET", "key", "value", "PX", 1000)
					_, _ = conn.Do("EVAL", "return redis.pcall('PUBLISH', 'c', 'm')", 0)
					_ = conn.Close()
				}
			})
		}
		for _, meddle := range []func(){
			func() { _ = n.Restart() },
			n.Stop,
			func() { _ = n.RestartEmpty() },
			func() { n.Hang(); n.Resume() },
			n.DropConnections,
			func() { n.SetError("ERR no", "PUBLISH"); n.SetError("") },
			func() { n.SetDelay(time.Millisecond); n.SetReplyDelay(time.Millisecond) },
			func() { n.Get("key"); n.Set("key", "v", 0); n.Delete("key"); n.FlushScripts() },
			func() { c.Holders("key"); n.Commands(); n.Connections(); n.Keys() },
		} {
			wg.Go(func() {
				for range 10 {
					meddle()
				}
			})
		}
		wg.Wait()

		n.SetDelay(0)
		n.SetReplyDelay(0)
		// A port that is free for a moment can be taken by anybody's outgoing
		// connection, those of other tests on this machine included.
		if err := n.Restart(); !errors.Is(err, syscall.EADDRINUSE) {
			require.NoError(t, err)
			assert.Equal(t, "PONG", do(t, dial(t, c, 0), "PING"))
		}
	})
}
