// Package port finds TCP ports that servers of tests can come back to after they were stopped.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Ports are below the range that systems hand to outgoing connections (it begins at 32768 on Linux, at
// 49152 elsewhere): otherwise some client could be given the port of a stopped server, which then could
// not come back.
const (
	firstPort = 20000
	lastPort  = 30000
)

// tries bounds how often a server is started anew because somebody else took its port in between.
const tries = 5

// taken holds the ports of this process's servers, stopped ones included: such a port looks free, and is not.
var taken = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// Reserve finds a port that nobody listens on, and keeps it for the test. Another process can still take it
// before the server does: the caller has to be ready for that.
func Reserve(tb testing.TB, host string) (int, error) {
	tb.Helper()
	taken.Lock()
	defer taken.Unlock()
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if taken.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, err
		}
		taken.ports[port] = true
		tb.Cleanup(func() { release(port) })
		return port, nil
	}
	return 0, fmt.Errorf("no free port on %s between %d and %d", host, firstPort, lastPort)
}

func release(port int) {
	taken.Lock()
	defer taken.Unlock()
	delete(taken.ports, port)
}

// ErrTaken is what the function given to [On] returns when the port was taken in between.
var ErrTaken = errors.New("port is taken")

// On calls start with one port after the other, as long as they turn out to be taken.
func On(tb testing.TB, host string, start func(port int) error) error {
	tb.Helper()
	var err error
	for range tries {
		var port int
		if port, err = Reserve(tb, host); err != nil {
			return err
		}
		if err = start(port); !errors.Is(err, ErrTaken) {
			return err
		}
	}
	return err
}
