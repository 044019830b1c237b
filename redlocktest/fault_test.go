package redlocktest_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/memconn"
	"github.com/redquorum/go-redlock/redlocktest"
)

// timesOut demands that a connection stays open and silent for a while.
func timesOut(t *testing.T, conn redis.Conn) {
	t.Helper()
	_, err := redis.ReceiveWithTimeout(conn, 30*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestAHungNodeAcceptsAndStaysSilent(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		before := dial(t, c, 0)
		n.Hang()
		n.Hang()
		during := dial(t, c, 0)
		for _, conn := range []redis.Conn{before, during} {
			send(t, conn, "SET", "key", "value")
			timesOut(t, conn)
		}
		assert.Empty(t, n.Keys())
		assert.Zero(t, n.Commands())
		eventually(t, func() bool { return n.Connections() == 2 }, "both are accepted")
	})
}

func TestResumeExecutesWhatArrivedMeanwhile(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.Hang()
		send(t, conn, "SET", "key", "value")
		n.Resume()
		n.Resume()
		reply, err := conn.Receive()
		require.NoError(t, err)
		assert.Equal(t, "OK", reply)
		assert.Equal(t, []string{"key"}, n.Keys())
	})
}

func TestResumeExecutesWhatClientsLeftBehind(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		before := dial(t, c, 0)
		n.Hang()
		during := dial(t, c, 0)
		send(t, before, "SET", "a", "1")
		send(t, before, "SET", "b", "2") // a second one, beyond what is being read
		send(t, during, "SET", "c", "3")
		require.NoError(t, before.Close())
		require.NoError(t, during.Close())
		assert.Empty(t, n.Keys())

		n.Resume()
		eventually(t, func() bool { return len(n.Keys()) == 3 }, "all is executed")
		eventually(t, func() bool { return n.Connections() == 0 }, "the connections come to their end")
	})
}

func TestAHungNodeTakesInNoMoreThanBuffersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		c.Node(0).Hang()
		conn, err := c.Dial(t.Context(), "tcp", c.Node(0).Addr())
		require.NoError(t, err)
		require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
		ping := []byte("PING " + strings.Repeat("x", 1000) + "\r\n")
		sent, err := conn.Write(bytes.Repeat(ping, 300))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.GreaterOrEqual(t, sent, memconn.BufferSize)
		assert.Less(t, sent, memconn.BufferSize+10_000, "what the node had begun to read")
		c.Node(0).Resume()
		require.NoError(t, conn.Close())
		synctest.Wait()
		assert.Equal(t, sent/len(ping), c.Node(0).Commands())
	})
}

func TestARestartedNodeDoesNotHang(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.Hang()
		send(t, conn, "SET", "key", "value")
		n.Stop()
		n.Hang() // there is nothing to hang
		require.NoError(t, n.Restart())
		assert.Equal(t, "PONG", do(t, dial(t, c, 0), "PING"))
		assert.Empty(t, n.Keys(), "a killed server executes nothing")
	})
}

func TestOneHungNodeDoesNotConcernTheOthers(t *testing.T) {
	each(t, 2, func(s scene) {
		t, c := s.t, s.cluster
		c.Node(0).Hang()
		assert.Equal(t, "PONG", do(t, dial(t, c, 1), "PING"))
	})
}

func TestDelayedCommandsAreExecutedLateAndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.SetDelay(time.Second)
		begin := time.Now()
		for _, key := range []string{"a", "b"} {
			send(t, conn, "SET", key, "value")
		}
		time.Sleep(time.Second - 1)
		synctest.Wait()
		assert.Empty(t, n.Keys())
		for range 2 {
			_, err := conn.Receive()
			require.NoError(t, err)
			assert.Equal(t, time.Second, time.Since(begin))
		}

		n.SetDelay(0)
		do(t, conn, "PING")
		assert.Equal(t, time.Second, time.Since(begin))
	})
}

func TestADelayedCommandOutlivesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.SetDelay(time.Second)
		send(t, conn, "SET", "key", "value")
		require.NoError(t, conn.Close())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"key"}, n.Keys())
		assert.Zero(t, n.Connections())
	})
}

func TestDelaysHoldOverTCPToo(t *testing.T) {
	const delay = 30 * time.Millisecond
	c := redlocktest.Start(t, 1)
	conn := dial(t, c, 0)
	c.Node(0).SetDelay(delay)
	begin := time.Now()
	do(t, conn, "PING")
	assert.GreaterOrEqual(t, time.Since(begin), delay)

	c.Node(0).SetReplyDelay(delay)
	begin = time.Now()
	do(t, conn, "PING")
	assert.GreaterOrEqual(t, time.Since(begin), 2*delay)
}

func TestAReplyDelayExecutesAtOnceAndAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.SetReplyDelay(time.Second)
		begin := time.Now()
		send(t, conn, "SET", "a", "value")
		synctest.Wait()
		assert.Equal(t, []string{"a"}, n.Keys())
		time.Sleep(time.Second / 2)
		send(t, conn, "SET", "b", "value")
		synctest.Wait()
		assert.Equal(t, []string{"a", "b"}, n.Keys(), "an answer under way holds nothing up")

		_, err := conn.Receive()
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(begin))
		_, err = conn.Receive()
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second/2, time.Since(begin))

		n.SetReplyDelay(0)
		do(t, conn, "PING")
		assert.Equal(t, 3*time.Second/2, time.Since(begin))
	})
}

func TestCommandsInsideScriptsAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		conn := dial(t, c, 0)
		c.Node(0).SetDelay(time.Second)
		begin := time.Now()
		do(t, conn, "EVAL", "for i = 1, 10 do redis.call('INCR', KEYS[1]) end", 1, "key")
		assert.Equal(t, time.Second, time.Since(begin))
	})
}

func TestSetErrorFailsEveryCommandAndExecutesNone(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.SetError("LOADING Redis is loading the dataset in memory")
		_, err := conn.Do("SET", "key", "value")
		require.Equal(t, redis.Error("LOADING Redis is loading the dataset in memory"), err)
		assert.Empty(t, n.Keys())
		assert.Equal(t, 1, n.Commands())

		n.SetError("")
		assert.Equal(t, "OK", do(t, conn, "SET", "key", "value"))
	})
}

func TestSetErrorFailsOnlyTheNamedCommands(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.SetError("OOM command not allowed", "set", "INCR")
		_, err := conn.Do("SET", "key", "value")
		require.ErrorContains(t, err, "OOM")
		assert.Equal(t, "PONG", do(t, conn, "PING"))

		n.SetError("ERR other", "PING") // replaces
		assert.Equal(t, "OK", do(t, conn, "SET", "key", "value"))
		_, err = conn.Do("PING")
		require.EqualError(t, err, "ERR other")
	})
}

func TestSetErrorHitsACommandInsideAScriptOnlyByName(t *testing.T) {
	const script = `
		redis.call('SET', KEYS[1], 'value')
		local sent = redis.pcall('PUBLISH', 'channel', 'hello')
		if type(sent) == 'table' then return sent.err end
		return 'published'`
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.SetError("NOPERM no channel", "PUBLISH")
		reply, err := redis.String(conn.Do("EVAL", script, 1, "key"))
		require.NoError(t, err)
		assert.Contains(t, reply, "NOPERM no channel")
		assert.Equal(t, []string{"key"}, n.Keys())

		n.SetError("OOM command not allowed", "SET")
		_, err = conn.Do("EVAL", script, 1, "other")
		require.ErrorContains(t, err, "OOM")
		assert.Equal(t, []string{"key"}, n.Keys())

		n.SetError("ERR no", "PING")
		reply, err = redis.String(conn.Do("EVAL", script, 1, "key"))
		require.NoError(t, err)
		assert.Equal(t, "published", reply)
	})
}

func TestDropRepliesExecutesAndNeverAnswers(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn, spared := dial(t, c, 0), dial(t, c, 0)
		n.DropReplies(true)
		send(t, conn, "SET", "key", "value")
		eventually(t, func() bool { return len(n.Keys()) == 1 }, "it is executed")
		timesOut(t, conn)

		n.DropReplies(false)
		assert.Equal(t, "PONG", do(t, spared, "PING"))
		assert.Equal(t, "PONG", do(t, dial(t, c, 0), "PING"))
	})
}

func TestAConnectionThatLostAnAnswerStaysMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		n := c.Node(0)
		conn, err := c.Dial(t.Context(), "tcp", n.Addr())
		require.NoError(t, err)
		n.DropReplies(true)
		_, err = io.WriteString(conn, "ECHO lost\r\n")
		require.NoError(t, err)
		synctest.Wait()
		n.DropReplies(false)
		_, err = io.WriteString(conn, "ECHO late\r\n")
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, 2, n.Commands())
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

func TestDropRepliesLosesPublishedMessages(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		sub := dial(t, c, 0)
		do(t, sub, "SUBSCRIBE", "channel")
		c.Node(0).DropReplies(true)
		publisher := dial(t, c, 0)
		send(t, publisher, "PUBLISH", "channel", "hello")
		timesOut(t, sub)
	})
}

func TestDropConnectionsClosesAllAndAcceptsNewOnes(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		idle, sub := dial(t, c, 0), dial(t, c, 0)
		do(t, idle, "PING")
		do(t, sub, "SUBSCRIBE", "channel")
		n.DropConnections()
		assert.Zero(t, n.Connections())
		for _, conn := range []redis.Conn{idle, sub} {
			_, err := conn.Receive()
			require.ErrorIs(t, err, io.EOF)
		}
		publisher := dial(t, c, 0)
		eventually(t, func() bool {
			return do(t, publisher, "PUBLISH", "channel", "hello") == int64(0)
		}, "the subscription is gone")
	})
}

func TestABlockedCommandEndsWithItsConnection(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		send(t, conn, "BLPOP", "list", 0)
		eventually(t, func() bool { return n.Commands() == 1 }, "it blocks")
		n.DropConnections()
		do(t, dial(t, c, 0), "RPUSH", "list", "element")
		assert.Equal(t, []string{"list"}, n.Keys(), "nobody waits for an element any more")
	})
}

func TestDropConnectionsForgetsWhatWasNotExecuted(t *testing.T) {
	each(t, 1, func(s scene) {
		t, c := s.t, s.cluster
		n := c.Node(0)
		conn := dial(t, c, 0)
		n.Hang()
		send(t, conn, "SET", "key", "value")
		eventually(t, func() bool { return n.Connections() == 1 }, "the connection is accepted")
		n.DropConnections()
		n.Resume()
		_, err := conn.Receive()
		require.Error(t, err) // EOF, or a reset because something was unread
		assert.Equal(t, "PONG", do(t, dial(t, c, 0), "PING"))
		assert.Empty(t, n.Keys())
	})
}

func TestFaultsOfTheNetworkOutliveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redlocktest.StartPiped(t, 1)
		n := c.Node(0)
		n.SetDelay(time.Second)
		n.SetReplyDelay(time.Second)
		n.SetError("ERR no", "PING")
		require.NoError(t, n.RestartEmpty())
		begin := time.Now()
		_, err := dial(t, c, 0).Do("PING")
		require.EqualError(t, err, "ERR no")
		assert.Equal(t, 2*time.Second, time.Since(begin))
	})
}
