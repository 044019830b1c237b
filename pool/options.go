package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/clock"
)

// DefaultTimeout is how long a node may take to answer, unless [WithTimeout]
// says otherwise.
const DefaultTimeout = 500 * time.Millisecond

// DialFunc opens a network connection to a node.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Option changes how a [Pool] behaves.
type Option func(*settings) error

type settings struct {
	timeout time.Duration
	clock   clock.Clock
	dial    DialFunc
	tls     *tls.Config
	redigo  []redis.DialOption
	guard   time.Duration
	logger  *slog.Logger
	monitor func(Change)
	dialled bool // an option about dialling was given
}

// WithTimeout sets how long the node may take to answer a command, from the
// moment its call was started. A call that must be sent in another form, because
// the node has refused a plain SET or lost its scripts, is another command.
// Connecting may take four times as long, but no call waits for that beyond its
// own timeout. Default [DefaultTimeout]; it must be positive, and 366 days at
// most.
func WithTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d <= 0 || d > clock.Longest {
			return fmt.Errorf("timeout %v is not between 1ns and %v", d, clock.Longest)
		}
		s.timeout = d
		return nil
	}
}

// WithClock sets the clock that timeouts and restarts are measured by. Default
// [clock.System].
func WithClock(c clock.Clock) Option {
	return func(s *settings) error {
		if c == nil {
			return errors.New("nil clock")
		}
		s.clock = c
		return nil
	}
}

// WithLogger sets where to say that the node cannot be reached or forbids
// subscribing (at level Warn), and that it is back (Info). Default: nowhere.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return errors.New("nil logger")
		}
		s.logger = logger
		return nil
	}
}

// WithDialer sets how network connections are opened: through a tunnel, say,
// or to an in-memory node. TLS, if asked for, is added on top. The connection
// must buffer some 16 KiB of writes, as a socket does and [net.Pipe] does not,
// or [Pool.Start] waits for the node to read; and its Close must unblock reads
// and writes. Default: a [net.Dialer].
func WithDialer(dial DialFunc) Option {
	return func(s *settings) error {
		if dial == nil {
			return errors.New("nil dialer")
		}
		s.dial, s.dialled = dial, true
		return nil
	}
}

// WithTLSConfig encrypts every TCP connection, with this configuration. The
// server name defaults to the host of the address. An address that asks for
// no encryption (redis://) is refused then; unix sockets stay as they are.
func WithTLSConfig(c *tls.Config) Option {
	return func(s *settings) error {
		if c == nil {
			return errors.New("nil TLS configuration")
		}
		s.tls, s.dialled = c.Clone(), true
		return nil
	}
}

// WithDialOptions adds redigo dial options, after what the address says. One
// that replaces the dialer (redis.DialContextFunc, redis.DialNetDial) works,
// but hides the network connection from this package: a connection that the
// server closed is then only noticed when it is next used. Prefer
// [WithDialer].
func WithDialOptions(options ...redis.DialOption) Option {
	return func(s *settings) error {
		s.redigo, s.dialled = append(s.redigo, options...), true
		return nil
	}
}

// WithRestartGuard keeps calls that may grant a lock from a node that
// restarted less than d ago, or that is another than the one that was known
// under this address less than d ago; see the option of the same name in
// package redlock. It relies on the uptime in INFO, which Redis reckons by its
// wall clock: one that is set forward between a restart and the first
// connection defeats it. Default 0: off.
func WithRestartGuard(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 || d > clock.Longest {
			return fmt.Errorf("restart guard %v is not between 0 and %v", d, clock.Longest)
		}
		s.guard = d
		return nil
	}
}

func newSettings(options []Option) (settings, error) {
	s := settings{
		timeout: DefaultTimeout,
		clock:   clock.System(),
		dial:    new(net.Dialer).DialContext,
		logger:  slog.New(slog.DiscardHandler),
	}
	for _, option := range options {
		if err := option(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}
