package redlock_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is the name that most tests lock.
const job = "job"

// parallel lets a test run beside others, in a bubble of its own:
//
//	synctest.Test(parallel(t), func(t *testing.T) { … })
//
// Time is virtual there, and when the bubble ends every goroutine that was
// started in it has ended, or the test fails.
func parallel(t *testing.T) *testing.T {
	t.Helper()
	t.Parallel()
	return t
}

// newCluster starts nodes inside the bubble.
func newCluster(t *testing.T, nodes int) *redlocktest.Cluster {
	t.Helper()
	return redlocktest.StartPiped(t, nodes)
}

// newLocker makes a Locker on the cluster whose connections are up already, so
// that delays which a test sets hit its own commands and no handshake.
func newLocker(t *testing.T, c *redlocktest.Cluster, opts ...redlock.Option) *redlock.Locker {
	t.Helper()
	l := coldLocker(t, c, opts...)
	warm(t, l)
	return l
}

// warm makes l connect to all nodes.
func warm(t *testing.T, l *redlock.Locker) {
	t.Helper()
	k, err := l.TryAcquire(t.Context(), "warm-up "+t.Name())
	if err == nil {
		require.NoError(t, k.Release(t.Context()))
	}
	synctest.Wait()
}

// coldLocker makes a Locker that has not connected yet.
func coldLocker(t *testing.T, c *redlocktest.Cluster, opts ...redlock.Option) *redlock.Locker {
	t.Helper()
	all := append([]redlock.Option{
		redlock.WithDialer(c.Dial),
		redlock.WithClock(clock.Monotonic()),
	}, opts...)
	l, err := redlock.New(c.Addrs(), all...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// acquired makes one attempt that must succeed, and waits until the stragglers
// have voted, too, if they can: a test that then does something to a node does
// not do it to a vote.
func acquired(t *testing.T, l *redlock.Locker, name string, opts ...redlock.LockOption) *redlock.Lock {
	t.Helper()
	k, err := l.TryAcquire(t.Context(), name, opts...)
	require.NoError(t, err)
	synctest.Wait()
	return k
}

// each calls do for the nodes with these numbers.
func each(c *redlocktest.Cluster, numbers []int, do func(*redlocktest.Node)) {
	for _, i := range numbers {
		do(c.Node(i))
	}
}

// upTo returns 0, 1, … n-1.
func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// commands returns how many commands each node has taken up, once all that is
// under way has arrived.
func commands(c *redlocktest.Cluster) []int {
	synctest.Wait()
	counts := make([]int, c.Len())
	for i := range counts {
		counts[i] = c.Node(i).Commands()
	}
	return counts
}

// calls returns how many script calls, or plain SETs in the place of one, each
// node has taken up.
func calls(c *redlocktest.Cluster) []int {
	synctest.Wait()
	counts := make([]int, c.Len())
	for i := range counts {
		counts[i] = c.Node(i).CountOf("EVALSHA") + c.Node(i).CountOf("EVAL") + c.Node(i).CountOf("SET")
	}
	return counts
}

// requireHolders checks on how many nodes the lock's key holds its token.
func requireHolders(t *testing.T, c *redlocktest.Cluster, k *redlock.Lock, want int) {
	t.Helper()
	synctest.Wait()
	for _, name := range k.Names() {
		require.Equal(t, want, c.Holders(name)[k.Token()], "nodes that hold %q for us", name)
	}
}

// requireFree checks that no node has a key for any of the names, once all
// that is under way has arrived.
func requireFree(t *testing.T, c *redlocktest.Cluster, names ...string) {
	t.Helper()
	synctest.Wait()
	for _, name := range names {
		require.Empty(t, c.Holders(name), "keys %q that were left behind", name)
	}
}

// requireQuorumError checks what must be true of every error of an operation
// on nodes, and returns it for more.
func requireQuorumError(t *testing.T, err error) *redlock.QuorumError {
	t.Helper()
	requireShape(t, err)
	failed := &redlock.QuorumError{}
	require.ErrorAs(t, err, &failed)
	return failed
}

// requireShape checks the text of an error.
func requireShape(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
	require.Regexp(t, `^redlock: `, err.Error())
	require.Equal(t, 1, strings.Count(err.Error(), "redlock: "), "the prefix is shown once: %v", err)
}

// outcomes are the sentinels of which an error has at most one.
var outcomes = []error{
	redlock.ErrTaken, redlock.ErrNoQuorum, redlock.ErrLost,
	redlock.ErrReleased, redlock.ErrClosed, redlock.ErrConfig,
}

// requireOutcome checks that err is this outcome and no other.
func requireOutcome(t *testing.T, err, want error) {
	t.Helper()
	require.Error(t, err)
	for _, outcome := range outcomes {
		require.Equal(t, want != nil && errors.Is(outcome, want), errors.Is(err, outcome), "%v is %v", err, outcome)
	}
}

// isDone reports whether a channel is closed.
func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// took returns how much virtual time do takes.
func took(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

// A wiretap sits between a Locker and the nodes: it keeps what the Locker
// sends, and may change what it gets to read.
type wiretap struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	sent  []byte
	alter func(addr string, reply []byte) []byte // nil: not
	dials func(addr string) error                // called before dialling; may wait, or fail
}

func newWiretap(c *redlocktest.Cluster) *wiretap { return &wiretap{dial: c.Dial} }

func (w *wiretap) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	before := w.dials
	w.mu.Unlock()
	if before != nil {
		if err := before(addr); err != nil {
			return nil, err
		}
	}
	conn, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: conn, tap: w, addr: addr}, nil
}

func (w *wiretap) onDial(do func(addr string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = do
}

func (w *wiretap) onReply(alter func(addr string, reply []byte) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alter = alter
}

var tokenPattern = regexp.MustCompile(`\r\n([A-Za-z0-9_-]{22}\.[^\r\n]*)\r\n`)

// tokens returns the tokens that were sent so far, each once per command.
func (w *wiretap) tokens() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, match := range tokenPattern.FindAllSubmatch(w.sent, -1) {
		found = append(found, string(match[1]))
	}
	return found
}

type tapped struct {
	net.Conn
	tap  *wiretap
	addr string
	rest []byte
}

func (c *tapped) Write(p []byte) (int, error) {
	c.tap.mu.Lock()
	c.tap.sent = append(c.tap.sent, p...)
	c.tap.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *tapped) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		buf := make([]byte, 64<<10)
		n, err := c.Conn.Read(buf)
		if err != nil {
			return n, err
		}
		c.tap.mu.Lock()
		alter := c.tap.alter
		c.tap.mu.Unlock()
		c.rest = buf[:n]
		if alter != nil {
			c.rest = alter(c.addr, c.rest)
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// bentClock is a clock whose readings a test can move.
type bentClock struct {
	clock.Clock

	mu      sync.Mutex
	elapsed time.Duration // added to Elapsed: time that the machine slept
	wall    time.Duration // added to Now
}

func newBentClock() *bentClock { return &bentClock{Clock: clock.Monotonic()} }

func (c *bentClock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Elapsed() + c.elapsed
}

func (c *bentClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Now().Add(c.wall)
}

// sleep lets time pass that no timer notices, as a suspended machine does.
func (c *bentClock) sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elapsed += d
}

// set puts the wall clock off by d.
func (c *bentClock) set(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = d
}

var errTest = errors.New("an error of the test's own")
