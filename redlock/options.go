package redlock

import (
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/foreign"
	"github.com/redquorum/go-redlock/pool"
)

// Option is what [New] and [NewWithPools] take.
type Option interface{ apply(*config) }

// LockOption is what the acquiring methods take. Each may also be given to
// [New], where it becomes the default of every lock.
type LockOption interface {
	Option
	applyLock(*lockConfig)
}

type config struct {
	lockConfig
	owner     string
	keyPrefix string
	clock     clock.Clock
	logger    *slog.Logger
	events    bool
	observer  Observer
	pools     []pool.Option
	dialling  string // the name of an option about dialling that was given
	// restartGuard is that of the pools, if they are the Locker's own.
	restartGuard time.Duration
	refused      *multierror.Error
	anyNumber    bool // of nodes, even ones too
}

type lockConfig struct {
	ttl             time.Duration
	driftFactor     float64
	minValidity     time.Duration
	maxAttempts     int
	minDelay        time.Duration
	maxDelay        time.Duration
	outageTolerance time.Duration
	autoRenew       bool
	maxHold         time.Duration
	minHold         time.Duration
	refill          bool
	fencing         bool
	ways            foreign.Ways
}

// Defaults of the options of the same name.
const (
	DefaultTTL             = 10 * time.Second
	DefaultDriftFactor     = 0.01
	DefaultMinRetryDelay   = 50 * time.Millisecond
	DefaultMaxRetryDelay   = 250 * time.Millisecond
	DefaultOutageTolerance = 5 * time.Second
	DefaultNodeTimeout     = pool.DefaultTimeout
)

const minTTL = 10 * time.Millisecond

func defaults() config {
	return config{
		lockConfig: lockConfig{
			ttl:             DefaultTTL,
			driftFactor:     DefaultDriftFactor,
			minDelay:        DefaultMinRetryDelay,
			maxDelay:        DefaultMaxRetryDelay,
			outageTolerance: DefaultOutageTolerance,
			refill:          true,
		},
		owner:  defaultOwner(),
		clock:  clock.System(),
		logger: slog.New(slog.DiscardHandler),
	}
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

type lockOption func(*lockConfig)

func (o lockOption) apply(c *config)         { o(&c.lockConfig) }
func (o lockOption) applyLock(c *lockConfig) { o(c) }

// WithTTL sets how long the lock is held if nobody renews or releases it: the
// expiry of its keys. Default 10 s. A whole number of milliseconds, from 10 ms
// to 366 days.
//
// Shorter means a crashed holder blocks others for less time; but everything
// that can delay the holder — a garbage collection, a slow network, a paused
// machine — counts against it.
func WithTTL(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.ttl = d })
}

// WithDriftFactor sets by what fraction the clocks of nodes and client may
// run at different rates. TTL × factor + 2 ms is taken off the validity.
// Default 0.01. At least 0 and below 1. With a factor below the true
// difference two clients can hold the lock at once.
func WithDriftFactor(f float64) LockOption {
	return lockOption(func(c *lockConfig) { c.driftFactor = f })
}

// WithMinValidity sets how much validity a lock must have left when it is
// handed out; an attempt that took so long that less is left has failed.
// Default 0: any. Not negative, and smaller than the TTL less drift. Close to
// that, an ordinary delay makes every attempt fail.
func WithMinValidity(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.minValidity = d })
}

// WithMaxAttempts bounds how often Acquire tries. Default 0: until the context
// ends. Not negative. The error of the last attempt is returned. It bounds
// neither the time nor the queueing behind other callers in this process: a
// deadline does.
func WithMaxAttempts(n int) LockOption {
	return lockOption(func(c *lockConfig) { c.maxAttempts = n })
}

// WithRetryDelay sets how long Acquire waits, at random between the two, before
// it tries again while others hold the lock and nothing is heard of them: where
// releases are not announced, because the holder uses another library or the
// nodes forbid the channel. Where a quorum of nodes would announce the release
// it waits ten times as long. Default 50 ms to 250 ms; 0 < shortest ≤ longest,
// and 366 days at most. An announcement ends the wait earlier, and so does the
// end of the holder's TTL, as the nodes reported it. While too few nodes answer
// it waits no longer than by default. Smaller finds such a lock sooner and puts
// more load on the nodes.
//
// Of the callers in this process that wait for the same lock only the first
// tries, by its own delay.
func WithRetryDelay(shortest, longest time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.minDelay, c.maxDelay = shortest, longest })
}

// WithOutageTolerance sets how long Acquire goes on trying while no quorum of
// nodes answers; then it returns ErrNoQuorum. Default 5 s. Not negative; 0
// returns at the first such attempt. Failures that time does not mend, such as a
// wrong password on a majority, are returned at once in any case. The tolerance
// of a caller that waits behind another of this process, for the same lock, is
// looked at when its turn comes.
func WithOutageTolerance(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.outageTolerance = d })
}

// WithAutoRenew renews the lock in the background, at about a third of the TTL,
// for as long as it is held. Default: off for Acquire, on for Do. A lock that
// is renewed and never released is held until the process ends; see
// [WithMaxHold]. It is not for a lock that another process is to take over; see
// [Locker.Resume].
func WithAutoRenew(on bool) LockOption {
	return lockOption(func(c *lockConfig) { c.autoRenew = on })
}

// WithMaxHold bounds how long the lock is held, renewed or not, from its
// acquisition: then it is lost. Default 0: no bound. From 10 ms to 366 days,
// longer than [WithMinValidity], and not shorter than [WithMinHold].
//
// The keys end with their TTL, so others wait for at most one TTL more. It
// cannot stop the code that works under the lock: watch the lock's context.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.maxHold = d })
}

// WithMinHold keeps the lock's keys until d after the acquisition, even if it
// is released earlier: Release then ends the lock for its holder, returns nil,
// and leaves the keys to end by themselves. Default 0. It must not exceed
// [WithMaxHold], nor 366 days.
//
// It is for jobs that start by the clock: one that is done in a second must not
// run again on a replica whose clock is a few seconds behind. Nor can anybody
// retry a job that failed before d is over. It takes effect at the release: the
// keys of a holder that dies end with their TTL, which may be earlier.
func WithMinHold(d time.Duration) LockOption {
	return lockOption(func(c *lockConfig) { c.minHold = d })
}

// WithRefill sets whether a renewal gives the keys back to nodes that have lost
// them, after a quorum has renewed. Default on. Off, a lock whose nodes restart
// empty one after another is lost with the last of a majority.
func WithRefill(on bool) LockOption {
	return lockOption(func(c *lockConfig) { c.refill = on })
}

// WithFencing gives each holder of a name a number, [Lock.FencingToken], that is
// larger than every earlier holder's. Default off. All holders of a name must
// use it, and the resource must refuse a number smaller than one that it has
// seen: that alone stops a holder that was paused past its TTL and writes late.
//
// It costs one round trip more when nodes do not agree on the number. It holds
// whatever the clocks of clients do, as long as a majority of nodes keeps its
// counters, which are stored for at least a day.
func WithFencing(on bool) LockOption {
	return lockOption(func(c *lockConfig) { c.fencing = on })
}

// WithNodeTimeout sets how long one node may take to answer one command.
// Default 500 ms. It must be positive, and 366 days at most. It bounds how long
// a method waits when a majority hangs; one whose command nodes have refused, or
// whose script they have lost (SCRIPT FLUSH), sends another and may wait as long
// once more. It should be well below the TTL and well above the round trip to
// the nodes.
func WithNodeTimeout(d time.Duration) Option {
	return option(func(c *config) {
		if d <= 0 || d > clock.Longest {
			c.refuse("WithNodeTimeout(%v): not between 1ns and %v", d, clock.Longest)
			return
		}
		c.pools = append(c.pools, pool.WithTimeout(d))
		c.dialling = "WithNodeTimeout"
	})
}

// WithRestartGuard keeps a node that restarted less than maxTTL ago from
// granting locks: it may have forgotten locks that it had granted. maxTTL must
// be at least the longest TTL, and the longest minimum hold ([WithMinHold]),
// that any client uses; a lock of this Locker that exceeds it is refused.
// Default 0: off. Not negative, and 366 days at most. It needs INFO, and a node
// that denies it grants nothing.
//
// It is what the Redis page calls delayed restarts, without delaying anything:
// such a node still renews and releases. Without it, and without persistence
// on every write, a restart at the wrong moment can let two clients hold a
// lock.
func WithRestartGuard(maxTTL time.Duration) Option {
	return option(func(c *config) {
		if maxTTL < 0 || maxTTL > clock.Longest {
			c.refuse("WithRestartGuard(%v): not between 0 and %v", maxTTL, clock.Longest)
			return
		}
		c.restartGuard = maxTTL
		c.pools = append(c.pools, pool.WithRestartGuard(maxTTL))
		c.dialling = "WithRestartGuard"
	})
}

// WithKeyPrefix sets what is put before each name to make its key. Default
// none: the name is the key. It must not begin with "redlock:", and must leave
// room for a name in a key of 1024 bytes. Clients that do not agree on it do
// not exclude each other.
func WithKeyPrefix(prefix string) Option {
	return option(func(c *config) { c.keyPrefix = prefix })
}

// WithOwner sets the label that tells people who holds a lock. Default
// host:pid. At most 128 bytes of UTF-8 without control characters. It is
// stored with the lock: no secrets.
func WithOwner(label string) Option {
	return option(func(c *config) {
		if err := checkOwner(label); err != nil {
			c.refuse("WithOwner(%.140q): %v", label, err)
		}
		c.owner = label
	})
}

// WithClock sets the clock that validity is measured by. Default
// [clock.System]. Use clock.Monotonic in a testing/synctest bubble.
func WithClock(source clock.Clock) Option {
	return option(func(c *config) {
		if source == nil {
			c.refuse("WithClock(nil): no clock")
			return
		}
		c.clock = source
	})
}

// WithLogger sets the logger for what no returned error reports: a lock that
// was lost and a node that cannot be reached or forbids the announcements (at
// level Warn), and a node that is back (Info). Tokens are never logged. Default:
// none.
func WithLogger(logger *slog.Logger) Option {
	return option(func(c *config) {
		if logger == nil {
			c.refuse("WithLogger(nil): no logger")
			return
		}
		c.logger = logger
	})
}

// WithObserver sets who is told what the Locker does, event by event, for
// metrics and tracing. Default nobody; then no event is made. No event comes
// after Close has returned, nor about a lock after its Release has returned,
// except [Released] itself where the context ended the waiting.
func WithObserver(o Observer) Option {
	return option(func(c *config) {
		if o == nil {
			c.refuse("WithObserver(nil): no observer")
			return
		}
		c.observer = o
	})
}

// WithEvents announces on all nodes when a lock was acquired or renewed, as a
// release is announced in any case, so that [Locker.Watch] sees it at once.
// Default off. It costs one more command per node, for which nobody waits. A
// user who may not publish announces nothing.
func WithEvents(on bool) Option {
	return option(func(c *config) { c.events = on })
}

// WithDialer sets how network connections to nodes are opened: through a
// tunnel, say. Default: a [net.Dialer]. TLS is added on top where it is asked
// for. What is opened must buffer some 16 KiB of writes, as a socket does; see
// [pool.WithDialer].
func WithDialer(dial pool.DialFunc) Option {
	return option(func(c *config) {
		if dial == nil {
			c.refuse("WithDialer(nil): no dialer")
			return
		}
		c.pools = append(c.pools, pool.WithDialer(dial))
		c.dialling = "WithDialer"
	})
}

// WithDialOptions adds redigo dial options for every node, after what its
// address says. Default: none. Prefer [WithDialer] and [WithTLSConfig] where they suffice; see
// [pool.WithDialOptions] for why.
func WithDialOptions(options ...redis.DialOption) Option {
	return option(func(c *config) {
		c.pools = append(c.pools, pool.WithDialOptions(options...))
		c.dialling = "WithDialOptions"
	})
}

// WithTLSConfig encrypts the connections to all nodes but unix sockets, with
// this configuration. Default: none, and TLS for rediss:// only. An address that
// asks for no encryption (redis://) is refused together with it.
func WithTLSConfig(t *tls.Config) Option {
	return option(func(c *config) {
		if t == nil {
			c.refuse("WithTLSConfig(nil): no configuration")
			return
		}
		c.pools = append(c.pools, pool.WithTLSConfig(t))
		c.dialling = "WithTLSConfig"
	})
}

func (c *config) refuse(format string, args ...any) {
	c.refused = multierror.Append(c.refused, refuse(format, args...))
}

// validate returns what is wrong with the options, all of it.
func (c *config) validate() error {
	if err := inline(multierror.Append(c.refused, c.lockConfig.validate())); err != nil {
		return err
	}
	return nil
}

// validate returns what is wrong with the lock options.
func (c *lockConfig) validate() error {
	usable := clock.Deadline(0, c.ttl, c.driftFactor)
	switch {
	case c.ttl < minTTL || c.ttl > clock.Longest:
		return refuse("WithTTL(%v): not between %v and %v", c.ttl, minTTL, clock.Longest)
	case c.ttl%time.Millisecond != 0:
		return refuse("WithTTL(%v): not a whole number of milliseconds", c.ttl)
	case !(c.driftFactor >= 0 && c.driftFactor < 1): // not NaN either
		return refuse("WithDriftFactor(%v): not at least 0 and below 1", c.driftFactor)
	case usable <= 0:
		return refuse("WithDriftFactor(%v): nothing is left of a TTL of %v", c.driftFactor, c.ttl)
	case c.minValidity < 0:
		return refuse("WithMinValidity(%v): negative", c.minValidity)
	case c.minValidity >= usable:
		return refuse("WithMinValidity(%v): a TTL of %v less drift is %v", c.minValidity, c.ttl, usable)
	case c.maxAttempts < 0:
		return refuse("WithMaxAttempts(%d): negative", c.maxAttempts)
	case c.minDelay <= 0 || c.maxDelay < c.minDelay || c.maxDelay > clock.Longest:
		return refuse("WithRetryDelay(%v, %v): want 0 < min ≤ max ≤ %v", c.minDelay, c.maxDelay, clock.Longest)
	case c.outageTolerance < 0:
		return refuse("WithOutageTolerance(%v): negative", c.outageTolerance)
	case c.maxHold != 0 && (c.maxHold < minTTL || c.maxHold > clock.Longest):
		return refuse("WithMaxHold(%v): neither 0 nor between %v and %v", c.maxHold, minTTL, clock.Longest)
	case c.minHold < 0 || c.minHold > clock.Longest:
		return refuse("WithMinHold(%v): not between 0 and %v", c.minHold, clock.Longest)
	case c.maxHold > 0 && c.maxHold < c.minHold:
		return refuse("WithMinHold(%v): longer than WithMaxHold(%v)", c.minHold, c.maxHold)
	case c.maxHold > 0 && c.maxHold <= c.minValidity:
		return refuse("WithMaxHold(%v): not longer than the minimum validity %v", c.maxHold, c.minValidity)
	}
	return nil
}

// unguarded returns why the restart guard is too short for a lock, or nil. It is
// asked for each lock rather than of the defaults, which a Locker that only
// looks at locks never uses.
func (c *config) unguarded(lock *lockConfig) error {
	switch guard := c.restartGuard; {
	case guard == 0:
	case guard < lock.ttl:
		return refuse("WithRestartGuard(%v): shorter than WithTTL(%v)", guard, lock.ttl)
	case guard < lock.minHold:
		return refuse("WithRestartGuard(%v): shorter than WithMinHold(%v)", guard, lock.minHold)
	}
	return nil
}
