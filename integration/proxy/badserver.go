package proxy

import (
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
)

// BadReplies are answers that no Redis gives, by name. A client must fail on each of them, without waiting for
// more than the protocol promises and without making room for what it was only told will come.
func BadReplies() map[string][]byte {
	noise := make([]byte, 4096)
	random := rand.New(rand.NewPCG(1, 2)) // the same bytes in every run
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	return map[string][]byte{
		"a huge array that does not come":        []byte("*1000000000\r\n"),
		"a huge string that does not come":       []byte("$999999999999\r\n"),
		"an array length beyond 64 bits":         []byte("*99999999999999999999\r\n"),
		"a string of negative length":            []byte("$-7\r\n"),
		"a length that is no number":             []byte("$many\r\n"),
		"an integer beyond 64 bits":              []byte(":99999999999999999999\r\n"),
		"an array in an array, and so on":        []byte(strings.Repeat("*1\r\n", 100_000)),
		"a line without an end":                  []byte("+" + strings.Repeat("x", 1<<20)),
		"a string that ends elsewhere":           []byte("$2\r\nxxxxxx\r\n"),
		"no type":                                []byte("\r\n"),
		"an unknown type":                        []byte("?1\r\n"),
		"HTTP":                                   []byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
		"random bytes":                           noise,
		"three replies to one request":           []byte("+OK\r\n+OK\r\n+OK\r\n"),
		"a reply of another type than asked for": []byte("*2\r\n:1\r\n$-1\r\n"),
	}
}

// AnswerWith starts a server that answers whatever arrives with the given bytes, and ends it when the test
// ends. It returns the server's address. Connections stay open until the client closes them.
func AnswerWith(tb testing.TB, reply []byte) (addr string) {
	tb.Helper()
	return Unasked(tb, nil, reply)
}

// Unasked is [AnswerWith], but the server begins every connection with a greeting that nobody asked for.
func Unasked(tb testing.TB, greeting, reply []byte) (addr string) {
	tb.Helper()
	return serve(tb, func(conn net.Conn) error {
		if _, err := conn.Write(greeting); err != nil {
			return err
		}
		request := make([]byte, 64<<10)
		for {
			if _, err := conn.Read(request); err != nil {
				return err
			}
			if _, err := conn.Write(reply); err != nil {
				return err
			}
		}
	})
}

// serve calls handle for every connection, on a goroutine of its own. When the test ends it closes them all and
// waits for the goroutines.
func serve(tb testing.TB, handle func(net.Conn) error) (addr string) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("proxy: bad server: %v", err)
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex // guards conns and closed
		conns  = map[net.Conn]bool{}
		closed bool
	)
	// add returns false when the test is over, and the connection was accepted too late to be closed with the rest.
	add := func(conn net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		conns[conn] = true
		return !closed
	}
	remove := func(conn net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		delete(conns, conn)
	}
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			wg.Go(func() {
				defer conn.Close()
				defer remove(conn)
				if add(conn) {
					_ = handle(conn) // whatever it is, the client has ended the connection
				}
			})
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		closed = true
		for conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return listener.Addr().String()
}
