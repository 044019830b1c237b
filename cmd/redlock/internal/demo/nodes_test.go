package demo_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/demo"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a node and the way to it.
type scene struct {
	*testing.T
	node demo.Faulty
	dial dialer
}

type dialer func(context.Context) (net.Conn, error)

// each runs a test on an embedded node, and on another behind a proxy: faults
// must look the same.
func each(t *testing.T, test func(scene)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		node, dial, stop, err := demo.Embedded()
		require.NoError(t, err)
		t.Cleanup(stop)
		test(scene{t, node, dial})
	})
	t.Run("proxied", func(t *testing.T) {
		t.Parallel()
		cluster := redlocktest.Start(t, 1)
		proxy, err := demo.NewProxy("tcp", cluster.Addrs()[0])
		require.NoError(t, err)
		t.Cleanup(proxy.Close)
		test(scene{t, proxy, proxy.Dial})
	})
}

// client speaks to a node, one line per command and answer.
type client struct {
	net.Conn
	t       *testing.T
	answers *bufio.Reader
}

func (d dialer) connect(t *testing.T) *client {
	t.Helper()
	conn, err := d(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &client{Conn: conn, t: t, answers: bufio.NewReader(conn)}
}

func (c *client) send(words ...string) {
	c.t.Helper()
	command := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		command += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	_, err := c.Write([]byte(command))
	require.NoError(c.t, err)
}

// answer returns the next line, or an error after the time.
func (c *client) answer(within time.Duration) (string, error) {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(within)))
	line, err := c.answers.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

func (c *client) do(words ...string) string {
	c.t.Helper()
	c.send(words...)
	line, err := c.answer(5 * time.Second)
	require.NoError(c.t, err)
	return line
}

const silence = 100 * time.Millisecond

func TestHungNodeAnswersOnceItIsResumed(t *testing.T) {
	each(t, func(s scene) {
		c := s.dial.connect(s.T)
		require.Equal(s, "+PONG", c.do("PING"))
		s.node.Hang()
		s.node.Hang()
		c.send("INCR", "n")
		late := s.dial.connect(s.T) // it is accepted, too
		late.send("PING")
		_, err := c.answer(silence)
		require.ErrorContains(s, err, "timeout")

		s.node.Resume()
		s.node.Resume()
		line, err := c.answer(5 * time.Second)
		require.NoError(s, err)
		assert.Equal(s, ":1", line)
		line, err = late.answer(5 * time.Second)
		require.NoError(s, err)
		assert.Equal(s, "+PONG", line)
	})
}

// What makes a hang dangerous: a client gives up, and its command is executed
// all the same.
func TestHungNodeExecutesWhatClientsLeftBehind(t *testing.T) {
	each(t, func(s scene) {
		c, other := s.dial.connect(s.T), s.dial.connect(s.T)
		require.Equal(s, "+PONG", c.do("PING"))
		require.Equal(s, "+PONG", other.do("PING"))
		s.node.Hang()
		c.send("SET", "n", "41")
		require.NoError(s, c.Close())
		s.node.Resume()
		require.Eventually(s, func() bool { return other.do("EXISTS", "n") == ":1" }, 5*time.Second, 5*ms)
	})
}

func TestKilledNodeRefusesAndKeepsItsData(t *testing.T) {
	each(t, func(s scene) {
		c := s.dial.connect(s.T)
		require.Equal(s, "+OK", c.do("SET", "n", "41"))
		s.node.Kill()
		s.node.Kill()
		_, err := c.answer(5 * time.Second)
		require.Error(s, err)
		assert.NotContains(s, err.Error(), "timeout", "the connection was left open")
		_, err = s.dial(s.Context())
		require.ErrorContains(s, err, "refused")

		require.NoError(s, s.node.Revive())
		assert.Equal(s, ":42", s.dial.connect(s.T).do("INCR", "n"))
	})
}

func TestNodeKilledWhileItHangsForgetsWhatItWasSent(t *testing.T) {
	each(t, func(s scene) {
		c := s.dial.connect(s.T)
		require.Equal(s, "+PONG", c.do("PING"))
		s.node.Hang()
		c.send("SET", "n", "41")
		time.Sleep(20 * time.Millisecond) // let it arrive
		s.node.Kill()
		require.NoError(s, s.node.Revive())
		assert.Equal(s, ":0", s.dial.connect(s.T).do("EXISTS", "n"), "it hangs or has executed an old command")
	})
}

func TestProxyHangsUpWhenTheNodeDoes(t *testing.T) {
	cluster := redlocktest.Start(t, 1)
	proxy, err := demo.NewProxy("tcp", cluster.Addrs()[0])
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	c := dialer(proxy.Dial).connect(t)
	require.Equal(t, "+PONG", c.do("PING"))
	cluster.Node(0).Stop()
	_, err = c.answer(5 * time.Second)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "timeout")

	// Without a node behind it, it is of no use to new clients either.
	conn, err := proxy.Dial(t.Context())
	if err != nil {
		return // the reset has overtaken the dialling
	}
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "timeout")
}

func TestClosedProxyCannotBeRevived(t *testing.T) {
	cluster := redlocktest.Start(t, 1)
	proxy, err := demo.NewProxy("tcp", cluster.Addrs()[0])
	require.NoError(t, err)
	dialer(proxy.Dial).connect(t)
	proxy.Hang()
	proxy.Close()
	proxy.Close()
	require.NoError(t, proxy.Revive())
	_, err = proxy.Dial(t.Context())
	require.ErrorContains(t, err, "refused")
}
