package redlock_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlock"
)

// What one pair of acquire and release may cost. Callers that come one by one
// write once to each node for each of the two; crowds share the writes.
const (
	maxAllocations = 30
	maxCrowdWrites = 1.25 // of 10 that they would do one by one
)

func TestAPairCostsFewAllocationsAndOneWriteForEachNodeAndOperation(t *testing.T) {
	nodes := &cheapNodes{}
	l := nodes.locker(t)
	pair := func() {
		k, err := l.TryAcquire(t.Context(), job)
		if err == nil {
			err = k.Release(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	pair()
	const pairs = 200
	nodes.writes.Store(0)
	allocations := testing.AllocsPerRun(pairs, pair)
	assert.LessOrEqual(t, allocations, float64(maxAllocations))
	// On a busy machine a node may be late, and is connected to again.
	assert.Less(t, float64(nodes.writes.Load())/(pairs+1), 10.5)
}

func TestACrowdSharesItsWrites(t *testing.T) {
	nodes := &cheapNodes{}
	l := nodes.locker(t)
	const callers, pairs = 64, 50
	var wg sync.WaitGroup
	for i := range callers {
		name := fmt.Sprint(job, i)
		wg.Go(func() {
			for range pairs {
				k, err := l.TryAcquire(t.Context(), name)
				if err == nil {
					err = k.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	writes := float64(nodes.writes.Load()) / (callers * pairs)
	t.Logf("%.2f writes a pair", writes)
	assert.LessOrEqual(t, writes, maxCrowdWrites)
}

// cheapNodes grant everything and allocate nothing, so that what a test counts
// is what the library costs.
type cheapNodes struct{ writes atomic.Int64 }

func (n *cheapNodes) locker(t *testing.T) *redlock.Locker {
	t.Helper()
	addrs := make([]string, 5)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("node%d:6379", i)
	}
	l, err := redlock.New(addrs, redlock.WithDialer(n.dial))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (n *cheapNodes) dial(context.Context, string, string) (net.Conn, error) {
	c := &cheapConn{nodes: n}
	c.change = sync.NewCond(&c.mu)
	return c, nil
}

// cheapConn is a client's end, and answers as it is written to.
type cheapConn struct {
	net.Conn // what is not here is not called
	nodes    *cheapNodes

	mu      sync.Mutex // guards what follows
	change  *sync.Cond
	request []byte // not complete yet
	answers []byte
	closed  bool
}

func (c *cheapConn) Write(p []byte) (int, error) {
	c.nodes.writes.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request = append(c.request, p...)
	rest := c.request
	for {
		args, after := command(rest)
		if after == nil {
			break
		}
		c.answer(args)
		rest = after
	}
	c.request = c.request[:copy(c.request, rest)]
	c.change.Signal()
	return len(p), nil
}

// command takes one off a stream, with its first arguments. after is nil if it
// is not complete.
func command(p []byte) (args [3][]byte, after []byte) {
	count, p := header(p)
	for i := range count {
		var size int
		if size, p = header(p); p == nil || len(p) < size+2 {
			return args, nil
		}
		if i < len(args) {
			args[i] = p[:size]
		}
		p = p[size+2:]
	}
	return args, p
}

// header reads the number in a line. after is nil if the line is not complete.
func header(p []byte) (n int, after []byte) {
	line, after, whole := bytes.Cut(p, []byte("\r\n"))
	if !whole {
		return 0, nil
	}
	for _, digit := range line[1:] {
		n = 10*n + int(digit-'0')
	}
	return n, after
}

// answer gives a script its first word for a hash.
func (c *cheapConn) answer(args [3][]byte) {
	switch string(args[0]) {
	case "SET":
		c.answers = append(c.answers, "+OK\r\n"...)
	case "EVALSHA":
		if string(args[1]) == "acquire" {
			c.answers = append(c.answers, ":0\r\n"...)
		} else {
			c.answers = append(c.answers, ":1\r\n"...)
		}
	case "SCRIPT":
		word, _, _ := strings.Cut(strings.TrimPrefix(string(args[2]), "-- "), ":")
		c.answers = fmt.Appendf(c.answers, "$%d\r\n%s\r\n", len(word), word)
	default:
		c.answers = append(c.answers, "$0\r\n\r\n"...) // INFO
	}
}

func (c *cheapConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.answers) == 0 && !c.closed {
		c.change.Wait()
	}
	if c.closed {
		return 0, io.EOF
	}
	n := copy(p, c.answers)
	c.answers = c.answers[:copy(c.answers, c.answers[n:])]
	return n, nil
}

func (c *cheapConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.change.Broadcast()
	return nil
}

func (c *cheapConn) SetDeadline(time.Time) error     { return nil }
func (c *cheapConn) SetReadDeadline(time.Time) error { return nil }
