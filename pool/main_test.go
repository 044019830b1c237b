package pool_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/memconn"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	timeout = 100 * time.Millisecond
	ttl     = time.Hour
)

func acquire(key, token string) *scripts.Call {
	return scripts.Acquire([]string{key}, token, ttl, scripts.Fencing{})
}

func renew() *scripts.Call { return scripts.Renew([]string{"key"}, "token", ttl) }

func release(key string) *scripts.Call { return scripts.Release([]string{key}, "token", false) }

// A box receives results. The node number of a call is its number in the box.
type box struct {
	unwanted atomic.Bool
	// deliver, if set, is called first, without the mutex.
	deliver func(id int, result pool.Result)

	mu    sync.Mutex // guards what follows
	got   map[int][]pool.Result
	order []int // as delivered
	since *sync.Cond
}

func newBox() *box {
	b := &box{got: map[int][]pool.Result{}}
	b.since = sync.NewCond(&b.mu)
	return b
}

func (b *box) Wanted() bool { return !b.unwanted.Load() }

func (b *box) Deliver(id int, result pool.Result) {
	if b.deliver != nil {
		b.deliver(id, result)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got[id] = append(b.got[id], result)
	b.order = append(b.order, id)
	b.since.Broadcast()
}

// await returns the one result of a call.
func (b *box) await(t *testing.T, id int) pool.Result {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.got[id]) == 0 {
		b.since.Wait()
	}
	require.Len(t, b.got[id], 1, "a call is delivered once")
	return b.got[id][0]
}

// peek returns the results of a call so far.
func (b *box) peek(id int) []pool.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[id]
}

func (b *box) delivered() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]int(nil), b.order...)
}

// A rig is a pool and the clock it goes by.
type rig struct {
	*pool.Pool
	clock clock.Clock
	next  atomic.Int64
}

func newRig(t *testing.T, address string, options ...pool.Option) *rig {
	t.Helper()
	c := clock.Monotonic()
	options = append([]pool.Option{pool.WithClock(c), pool.WithTimeout(timeout)}, options...)
	p, err := pool.New(address, options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return &rig{Pool: p, clock: c}
}

// send starts a call and returns its number.
func (r *rig) send(to pool.Receiver, script *scripts.Call) int {
	id := int(r.next.Add(1))
	r.Start(&pool.Call{Script: script, To: to, Node: id, Began: r.clock.Elapsed()})
	return id
}

// call starts a call and waits for its result.
func (r *rig) call(t *testing.T, script *scripts.Call) pool.Result {
	t.Helper()
	b := newBox()
	return b.await(t, r.send(b, script))
}

func (r *rig) mustCall(t *testing.T, script *scripts.Call) any {
	t.Helper()
	result := r.call(t, script)
	require.NoError(t, result.Err)
	require.Equal(t, pool.Answered, result.Sent)
	return result.Reply
}

// embedded returns an embedded node and its pool, in a bubble.
func embedded(t *testing.T, options ...pool.Option) (*redlocktest.Node, *rig) {
	t.Helper()
	cluster := redlocktest.StartPiped(t, 1)
	return cluster.Node(0), newRig(t, cluster.Addrs()[0], append(options, pool.WithDialer(cluster.Dial))...)
}

// A fake is a server of which every byte is scripted.
type fake struct {
	// info is what INFO answers, a complete RESP reply; "" for a run id and a
	// long uptime.
	info func(n int) string
	// opened is called when the n-th connection opens, counted from 1. With
	// false the rest of the conversation is its own affair.
	opened func(n int, conn net.Conn) bool
	// load answers SCRIPT LOAD; "" for a hash.
	load func(n int, script string) string
	// handle takes every other command, and returns the answer; "" for none.
	handle func(n int, conn net.Conn, args []string) string
	// wrap may put a layer on the server's end.
	wrap func(net.Conn) net.Conn

	refuse atomic.Bool
	dials  atomic.Int64

	mu    sync.Mutex // guards what follows
	conns []net.Conn
	open  int // client ends that are not closed
	most  int
	wg    sync.WaitGroup
}

// serve makes the fake usable; every connection is closed when the test ends.
func serve(t *testing.T, f *fake) *fake {
	t.Helper()
	t.Cleanup(func() {
		f.mu.Lock()
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.wg.Wait()
	})
	return f
}

func (f *fake) rig(t *testing.T, options ...pool.Option) *rig {
	t.Helper()
	return newRig(t, "fake:6379", append([]pool.Option{pool.WithDialer(f.dial)}, options...)...)
}

func (f *fake) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if f.refuse.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := int(f.dials.Add(1))
	ours, theirs := memconn.Pipe(memconn.Addr("fake:6379"), memconn.Addr("client"))
	var server net.Conn = ours
	if f.wrap != nil {
		server = f.wrap(server)
	}
	f.mu.Lock()
	f.conns = append(f.conns, server)
	f.open++
	f.most = max(f.most, f.open)
	f.mu.Unlock()
	f.wg.Go(func() { f.converse(n, server) })
	return &counted{Conn: theirs, closed: sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open--
	})}, nil
}

// counted is a client's end that is counted while it is open.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}

func (f *fake) mostOpen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

func (f *fake) nowOpen() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// conn returns the server's end of the newest connection.
func (f *fake) conn() net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns[len(f.conns)-1]
}

func (f *fake) converse(n int, conn net.Conn) {
	if f.opened != nil && !f.opened(n, conn) {
		return
	}
	r := bufio.NewReader(conn)
	loaded := 0
	for {
		args, err := readCommand(r)
		if err != nil {
			_ = conn.Close()
			return
		}
		var answer string
		switch strings.ToUpper(args[0]) {
		case "SCRIPT":
			loaded++
			answer = bulk("hash" + strconv.Itoa(loaded))
			if f.load != nil {
				answer = f.load(n, args[2])
			}
		case "INFO":
			answer = info("one", 1_000_000)
			if f.info != nil {
				answer = f.info(n)
			}
		default:
			answer = ":1\r\n"
			if f.handle != nil {
				answer = f.handle(n, conn, args)
			}
		}
		_, _ = io.WriteString(conn, answer)
	}
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func info(runID string, uptime int) string {
	return bulk(fmt.Sprintf("# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", runID, uptime))
}

func readCommand(r *bufio.Reader) ([]string, error) {
	header, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(header[1:]))
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		header, err := r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.Atoi(strings.TrimSpace(header[1:]))
		if err != nil {
			return nil, err
		}
		data := make([]byte, size+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, err
		}
		args[i] = string(data[:size])
	}
	return args, nil
}

// quiet waits until everything in the bubble waits.
func quiet() { synctest.Wait() }
