package memconn_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/go-redlock/internal/memconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe returns a new connection that is closed when the test ends. In a bubble,
// a goroutine that is left over, or that waits for what cannot come, is a panic.
func pipe(t *testing.T) (a, b *memconn.Conn) {
	t.Helper()
	a, b = memconn.Pipe(memconn.Addr("a"), memconn.Addr("b"))
	t.Cleanup(func() {
		_ = a.Close() // most tests have closed one end or both
		_ = b.Close()
	})
	return a, b
}

// result of a Read or Write.
type result struct {
	n   int
	err error
}

// begin calls a Read or Write that is expected to wait, and returns when it
// does.
func begin(t *testing.T, call func([]byte) (int, error), p []byte) <-chan result {
	t.Helper()
	done := make(chan result, 1)
	go func() {
		n, err := call(p)
		done <- result{n, err}
	}()
	synctest.Wait()
	require.Empty(t, done, "the call did not wait")
	return done
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	n, err := io.WriteString(c, s)
	require.NoError(t, err)
	require.Equal(t, len(s), n)
}

func read(t *testing.T, c net.Conn) string {
	t.Helper()
	p := make([]byte, 100)
	n, err := c.Read(p)
	require.NoError(t, err)
	return string(p[:n])
}

// full is more than a direction holds.
func full() []byte { return make([]byte, memconn.BufferSize+10) }

func TestWhatOneEndWritesTheOtherReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		write(t, a, "to ")
		write(t, a, "b")
		write(t, b, "to a")
		assert.Equal(t, "to b", read(t, b))
		assert.Equal(t, "to a", read(t, a))
	})
}

func TestAReadTakesWhatFitsAndLeavesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		write(t, a, "abc")
		p := make([]byte, 2)
		n, err := b.Read(p)
		require.NoError(t, err)
		assert.Equal(t, "ab", string(p[:n]))
		assert.Equal(t, "c", read(t, b))
		n, err = b.Read(nil)
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

func TestAReadWaitsForAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		p := make([]byte, 10)
		reading := begin(t, b.Read, p)
		write(t, a, "late")
		assert.Equal(t, result{4, nil}, <-reading)
		assert.Equal(t, "late", string(p[:4]))
	})
}

func TestAWriteWaitsOnlyWhenTheBufferIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		n, err := a.Write(make([]byte, memconn.BufferSize))
		require.NoError(t, err)
		require.Equal(t, memconn.BufferSize, n)

		writing := begin(t, a.Write, []byte("xyz"))
		_, err = b.Read(make([]byte, 2))
		require.NoError(t, err)
		synctest.Wait()
		assert.Empty(t, writing, "there is room for a part only")
		_, err = b.Read(make([]byte, 1))
		require.NoError(t, err)
		assert.Equal(t, result{3, nil}, <-writing)
	})
}

func TestMuchDataPassesUnharmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		sent := make([]byte, 20*memconn.BufferSize+7)
		random := rand.NewChaCha8([32]byte{})
		_, _ = random.Read(sent) // never fails
		received := make(chan []byte)
		go func() {
			got, err := io.ReadAll(b)
			assert.NoError(t, err)
			received <- got
		}()
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+int(random.Uint64()%100_000))
			written, err := a.Write(rest[:n])
			require.NoError(t, err)
			require.Equal(t, n, written)
			rest = rest[n:]
		}
		require.NoError(t, a.Close())
		assert.True(t, bytes.Equal(sent, <-received))
	})
}

func TestConcurrentWritesAreNotInterleaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		const size = 3 * memconn.BufferSize // each waits for room, and could be overtaken then
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				_, err := a.Write(bytes.Repeat([]byte{byte('0' + i)}, size))
				assert.NoError(t, err)
			})
		}
		seen := map[byte]bool{}
		for range 4 {
			p := make([]byte, size)
			_, err := io.ReadFull(b, p)
			require.NoError(t, err)
			assert.Equal(t, bytes.Repeat(p[:1], size), p)
			seen[p[0]] = true
		}
		assert.Len(t, seen, 4)
		wg.Wait()
	})
}

func TestTheOtherEndDrainsBeforeItSeesEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		write(t, a, "last words")
		require.NoError(t, a.Close())
		assert.Equal(t, "last words", read(t, b))
		for range 2 {
			_, err := b.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err, "bare, as from a TCP connection")
		}
		_, err := b.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

func TestCloseUnblocksBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		_, err := b.Write(make([]byte, memconn.BufferSize))
		require.NoError(t, err)
		_, err = io.ReadFull(a, make([]byte, memconn.BufferSize))
		require.NoError(t, err)

		ownRead := begin(t, a.Read, make([]byte, 1))
		ownWrite := begin(t, a.Write, full())
		ownQueuedWrite := begin(t, a.Write, []byte("x"))
		require.NoError(t, a.Close())
		require.ErrorIs(t, (<-ownRead).err, net.ErrClosed)
		wrote := <-ownWrite
		assert.Equal(t, memconn.BufferSize, wrote.n)
		require.ErrorIs(t, wrote.err, net.ErrClosed)
		require.ErrorIs(t, (<-ownQueuedWrite).err, net.ErrClosed)
	})
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		othersRead := begin(t, b.Read, make([]byte, 1))
		othersWrite := begin(t, b.Write, full())
		require.NoError(t, a.Close())
		assert.Equal(t, result{0, io.EOF}, <-othersRead)
		wrote := <-othersWrite
		assert.Equal(t, memconn.BufferSize, wrote.n)
		require.ErrorIs(t, wrote.err, syscall.EPIPE)
	})
}

func TestAClosedEndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		write(t, b, "unread")
		require.NoError(t, a.Close())
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = a.Write(nil)
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, a.Close(), net.ErrClosed)
		require.ErrorIs(t, a.SetDeadline(time.Now()), net.ErrClosed)
		require.ErrorIs(t, a.SetReadDeadline(time.Now()), net.ErrClosed)
		require.ErrorIs(t, a.SetWriteDeadline(time.Now()), net.ErrClosed)
	})
}

func TestResetFailsBothEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		waiting := []<-chan result{
			begin(t, a.Read, make([]byte, 1)),
			begin(t, a.Write, full()),
		}
		a.Reset()
		for _, w := range waiting {
			require.ErrorIs(t, (<-w).err, syscall.ECONNRESET)
		}
		// b has data in its buffer, which a reset does away with.
		for _, c := range []*memconn.Conn{a, b} {
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = c.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
		require.NoError(t, a.Close())
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET, "a later Close does not turn it into EOF")
		require.NoError(t, b.Close())
	})
}

func TestADeadlineEndsAWaitWhenItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := pipe(t)
		start := time.Now()
		// Without a monotonic reading, as from a parsed time.
		require.NoError(t, a.SetDeadline(start.Add(time.Second).Round(0)))
		reading := begin(t, a.Read, make([]byte, 1))
		writing := begin(t, a.Write, full())
		queued := begin(t, a.Write, []byte("x"))

		wrote := <-writing
		assert.Equal(t, memconn.BufferSize, wrote.n, "the part that was sent")
		for _, err := range []error{(<-reading).err, wrote.err, (<-queued).err} {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			var netErr net.Error
			require.ErrorAs(t, err, &netErr)
			assert.True(t, netErr.Timeout())
		}
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestAPastDeadlineFailsEvenWhatNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		write(t, b, "data")
		require.NoError(t, a.SetDeadline(time.Now().Add(-1)))
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_, err = a.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		require.NoError(t, a.SetDeadline(time.Time{}))
		assert.Equal(t, "data", read(t, a))
		write(t, a, "x")
	})
}

func TestADeadlineUnblocksWhoWaitsAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := pipe(t)
		reading := begin(t, a.Read, make([]byte, 1))
		require.NoError(t, a.SetReadDeadline(time.Now()))
		require.ErrorIs(t, (<-reading).err, os.ErrDeadlineExceeded)
	})
}

func TestANewDeadlineReplacesTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := pipe(t)
		start := time.Now()
		require.NoError(t, a.SetReadDeadline(start.Add(time.Second)))
		reading := begin(t, a.Read, make([]byte, 1))
		require.NoError(t, a.SetReadDeadline(start.Add(3*time.Second)))
		require.ErrorIs(t, (<-reading).err, os.ErrDeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestReadAndWriteDeadlinesAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		require.NoError(t, a.SetReadDeadline(time.Now()))
		write(t, a, "x")
		require.NoError(t, a.SetReadDeadline(time.Time{}))
		require.NoError(t, a.SetWriteDeadline(time.Now()))
		write(t, b, "y")
		assert.Equal(t, "y", read(t, a))
		assert.Equal(t, "x", read(t, b), "the other end has deadlines of its own")
	})
}

func TestErrorsNameTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		assert.Equal(t, "mem", a.LocalAddr().Network())
		assert.Equal(t, "a", a.LocalAddr().String())
		assert.Equal(t, a.LocalAddr(), b.RemoteAddr())
		assert.Equal(t, a.RemoteAddr(), b.LocalAddr())
		a.Reset()
		_, err := a.Read(make([]byte, 1))
		require.EqualError(t, err, "read mem a->b: read: connection reset by peer")
	})
}

// Outside a bubble, for the race detector: every method at once.
func TestConnectionsStandConcurrentUse(*testing.T) {
	for range 50 {
		a, b := memconn.Pipe(memconn.Addr("a"), memconn.Addr("b"))
		var wg sync.WaitGroup
		for _, c := range []*memconn.Conn{a, b} {
			for range 2 {
				wg.Go(func() { _, _ = io.Copy(io.Discard, c) })
				wg.Go(func() { _, _ = c.Write(full()) })
				wg.Go(func() { _ = c.SetDeadline(time.Now().Add(time.Duration(rand.IntN(int(time.Millisecond))))) })
				wg.Go(func() { _ = c.SetDeadline(time.Time{}) })
			}
		}
		wg.Go(func() {
			if rand.IntN(2) == 0 {
				a.Reset()
			}
			_ = a.Close()
			_ = b.Close()
		})
		wg.Wait()
	}
}
