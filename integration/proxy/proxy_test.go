package proxy_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/integration/proxy"
)

// patience is what a client waits for an answer that it should not get.
const patience = 200 * time.Millisecond

func front(t *testing.T) (*nodes.Node, *proxy.Proxy) {
	t.Helper()
	cluster := nodes.Start(t, 1)
	return cluster.Node(0), proxy.Front(t, cluster.Addrs())[0]
}

func dial(t *testing.T, p *proxy.Proxy) redis.Conn {
	t.Helper()
	conn, err := redis.Dial("tcp", p.Addr(), redis.DialConnectTimeout(5*time.Second), redis.DialReadTimeout(5*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// set sends a SET and returns once that is written; what becomes of it is the test's question.
func set(t *testing.T, conn redis.Conn, key string) {
	t.Helper()
	require.NoError(t, conn.Send("SET", key, "v"))
	require.NoError(t, conn.Flush())
}

func requireNoAnswer(t *testing.T, conn redis.Conn) {
	t.Helper()
	_, err := redis.ReceiveWithTimeout(conn, patience)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "no answer at all was expected: %v", err)
}

// requireKey waits until the node has executed the request for key k.
func requireKey(t *testing.T, n *nodes.Node) {
	t.Helper()
	require.Eventually(t, func() bool {
		exists, err := redis.Bool(n.Do("EXISTS", "k"))
		return err == nil && exists
	}, 5*time.Second, 5*time.Millisecond)
}

// requireEnded tells a connection that has ended from one that only does not answer.
func requireEnded(t *testing.T, conn redis.Conn) {
	t.Helper()
	_, err := redis.ReceiveWithTimeout(conn, 5*time.Second)
	require.Error(t, err)
	if timeout, ok := errors.AsType[net.Error](err); ok {
		require.False(t, timeout.Timeout(), "the connection should have ended: %v", err)
	}
}

func ping(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	_, err := dial(t, p).Do("PING")
	require.NoError(t, err)
}

func TestWithoutAFaultEverythingPasses(t *testing.T) {
	cluster := nodes.Start(t, 3)
	fleet := proxy.Front(t, cluster.Addrs())
	require.Len(t, fleet.Addrs(), 3)
	for i, p := range fleet {
		_, err := dial(t, p).Do("SET", "k", i)
		require.NoError(t, err)
		got, err := redis.Int(cluster.Node(i).Do("GET", "k"))
		require.NoError(t, err)
		assert.Equal(t, i, got)
	}
}

func TestLatencyDelaysBothDirections(t *testing.T) {
	_, p := front(t)
	conn := dial(t, p)
	p.Latency(50*time.Millisecond, 0)
	began := time.Now()
	_, err := conn.Do("PING")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), 95*time.Millisecond)

	p.Heal()
	_, err = conn.Do("PING")
	require.NoError(t, err)
}

func TestAStalledRequestArrivesWhenTheStallEndsEvenIfTheClientIsGone(t *testing.T) {
	n, p := front(t)
	conn := dial(t, p)
	p.Stall(proxy.Upstream)
	set(t, conn, "k")
	requireNoAnswer(t, conn)
	_ = conn.Close() // it says again that it had failed
	require.Empty(t, n.Keys())
	p.Heal()
	requireKey(t, n)
	ping(t, p)
}

func TestAStalledReplyArrivesWhenTheStallEnds(t *testing.T) {
	n, p := front(t)
	raw, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer raw.Close()
	p.Stall(proxy.Downstream)
	_, err = raw.Write([]byte("SET k v\r\n"))
	require.NoError(t, err)
	requireKey(t, n)
	require.NoError(t, raw.SetReadDeadline(time.Now().Add(patience)))
	reply := make([]byte, len("+OK\r\n"))
	_, err = raw.Read(reply)
	require.Error(t, err)

	p.Heal()
	require.NoError(t, raw.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = io.ReadFull(raw, reply)
	require.NoError(t, err)
	assert.Equal(t, "+OK\r\n", string(reply))
}

func TestADroppedRequestIsNeverExecuted(t *testing.T) {
	n, p := front(t)
	conn := dial(t, p)
	p.Drop(proxy.Upstream)
	set(t, conn, "lost")
	requireNoAnswer(t, conn)
	p.Heal()
	_, err := dial(t, p).Do("SET", "k", "v")
	require.NoError(t, err)
	assert.Equal(t, []string{"k"}, n.Keys())
}

func TestARequestWhoseReplyIsDroppedIsExecuted(t *testing.T) {
	n, p := front(t)
	raw, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer raw.Close()
	p.Drop(proxy.Downstream)
	_, err = raw.Write([]byte("SET k v\r\n"))
	require.NoError(t, err)
	requireKey(t, n)
	p.Heal()
	require.NoError(t, raw.SetReadDeadline(time.Now().Add(5*time.Second)))
	got, err := io.ReadAll(raw)
	assert.Empty(t, got, "after a loss a connection must end, not go on with a gap")
	if err != nil {
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	ping(t, p)
}

func TestAHalfOpenProxyAcceptsAndNeverAnswers(t *testing.T) {
	n, p := front(t)
	p.HalfOpen()
	conn := dial(t, p)
	set(t, conn, "k")
	requireNoAnswer(t, conn)
	assert.Empty(t, n.Keys())
	p.Heal()
	ping(t, p)
	assert.Empty(t, n.Keys())
}

func TestResetInReplyPassesSoManyBytesAndThenResets(t *testing.T) {
	n, p := front(t)
	p.ResetInReply(3)
	for range 3 { // each connection anew
		raw, err := net.Dial("tcp", p.Addr())
		require.NoError(t, err)
		_, err = raw.Write([]byte("SET k v\r\n"))
		require.NoError(t, err)
		require.NoError(t, raw.SetReadDeadline(time.Now().Add(5*time.Second)))
		got, err := io.ReadAll(raw)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		assert.Equal(t, "+OK", string(got))
		require.NoError(t, raw.Close())
	}
	assert.Equal(t, []string{"k"}, n.Keys())
	p.Heal()
	ping(t, p)
}

func TestCutEndsTheConnectionsAndAcceptsNewOnes(t *testing.T) {
	_, p := front(t)
	for range 5 {
		conn := dial(t, p)
		_, err := conn.Do("PING")
		require.NoError(t, err)
		p.Cut()
		requireEnded(t, conn)
	}
	ping(t, p)
}

func TestRefuseRefusesUntilHealedAtTheSameAddress(t *testing.T) {
	_, p := front(t)
	addr := p.Addr()
	for range 3 {
		conn := dial(t, p)
		_, err := conn.Do("PING")
		require.NoError(t, err)
		p.Refuse()
		requireEnded(t, conn)
		_, err = net.Dial("tcp", addr)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		p.Refuse() // twice is no error
		p.Heal()
		ping(t, p)
	}
	p.Refuse()
	p.Latency(time.Millisecond, time.Millisecond) // another fault takes the place of the refusal
	ping(t, p)
}

func TestOneFaultTakesThePlaceOfTheOther(t *testing.T) {
	n, p := front(t)
	p.Stall(proxy.Upstream)
	p.Stall(proxy.Downstream)
	conn := dial(t, p)
	set(t, conn, "k")
	requireKey(t, n)
	p.HalfOpen()
	p.ResetInReply(0)
	p.Drop(proxy.Upstream)
	p.Heal()
	ping(t, p)
}

func TestABadServerSendsWhatItIsToldTo(t *testing.T) {
	for name, reply := range proxy.BadReplies() {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", proxy.AnswerWith(t, reply))
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
			_, err = conn.Write([]byte("PING\r\n"))
			require.NoError(t, err)
			got := make([]byte, len(reply))
			_, err = io.ReadFull(conn, got)
			require.NoError(t, err)
			assert.Equal(t, reply, got)
		})
	}
}

func TestABadServerSpeaksUnasked(t *testing.T) {
	conn, err := redis.Dial("tcp", proxy.Unasked(t, []byte("+HELLO\r\n"), []byte("+PONG\r\n")))
	require.NoError(t, err)
	defer conn.Close()
	got, err := redis.String(conn.Do("PING"))
	require.NoError(t, err)
	assert.Equal(t, "HELLO", got, "a client that trusts the order of replies is one behind")
}
