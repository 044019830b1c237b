package redsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/foreign"
	"github.com/redquorum/go-redlock/redlock"
)

const (
	// minDelay keeps Lock from asking the nodes without a pause.
	minDelay = time.Millisecond
	// minTimeout is how long a try may take however short the expiry is: long
	// enough for connecting.
	minTimeout = 50 * time.Millisecond
	// stretch is for how long Lock calls the delay function in advance: not for
	// all tries, for some programs say WithTries(math.MaxInt).
	stretch = time.Minute
)

// A Mutex is a lock on a quorum of nodes. It is safe for concurrent use, but
// stands for one lock at a time: as with a sync.Mutex, contenders that lock the
// same Mutex exclude each other, and anybody may unlock it.
type Mutex struct {
	redsync *Redsync
	name    string
	expiry  time.Duration
	quorum  int

	tries         int
	delayFunc     DelayFunc
	driftFactor   float64
	timeoutFactor float64
	genValueFunc  func() (string, error) // nil: tokens of the core's own
	shuffle       bool
	failFast      bool
	setNXOnExtend bool

	mu    sync.Mutex // guards what follows
	value string
	until time.Time
	lock  *redlock.Lock // nil before Lock, after Unlock, and if only the value is known
	drawn string        // by genValueFunc, the last time
}

// Name returns the name of the mutex, the key on the nodes.
func (m *Mutex) Name() string { return m.name }

// Value returns the value that the lock has on the nodes, or had last. It is
// empty before the mutex was locked for the first time, unless [WithValue] was
// given. Who knows it can unlock the mutex: treat it as a secret.
func (m *Mutex) Value() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value
}

// Until returns up to when the lock was valid after it was last locked or
// extended; zero before. It is a reading of the wall clock that also carries
// Go's monotonic time, and neither counts the time that the machine sleeps.
func (m *Mutex) Until() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.until
}

// TryLock is [Mutex.TryLockContext] without a context.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext tries once to lock m. It returns what LockContext does.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.lockContext(ctx, 1) }

// Lock is [Mutex.LockContext] without a context.
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext locks m, trying for as long as [WithTries] and the delays say.
//
// If others hold the lock it returns *[ErrTaken], joined with what nodes that
// failed have said, or if no quorum refused, *[ErrNodeTaken] and *[RedisError]
// for each node. It returns [ErrFailed] together with the context's error and
// cause if ctx ended, and [ErrFailed] if a quorum granted too late;
// [redlock.ErrConfig] if the name or an option makes no sense.
func (m *Mutex) LockContext(ctx context.Context) error { return m.lockContext(ctx, m.tries) }

func (m *Mutex) lockContext(ctx context.Context, tries int) error {
	if tries < 1 {
		return ErrFailed
	}
	locker, options, err := m.begin()
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(m) // see newRedsync
	ctx = orBackground(ctx)
	for made := 1; made < tries; {
		d := m.delays(made, tries-made)
		k, err := acquire(ctx, locker, m.name, d, options)
		if !errors.Is(err, errOver) {
			return m.locked(ctx, k, err)
		}
		made += d.count
	}
	k, err := locker.TryAcquire(ctx, m.name, options...)
	return m.locked(ctx, k, err)
}

// delays are some of the delays between tries.
type delays struct {
	count                    int
	total, shortest, longest time.Duration
}

// delays returns the delays that follow after so many tries, up to the number
// that is left, but no more of them than fill a stretch.
func (m *Mutex) delays(made, left int) delays {
	d := delays{shortest: math.MaxInt64}
	for d.count < left && d.total < stretch {
		delay := max(m.delayFunc(made+d.count), minDelay)
		d.count++
		d.total += min(delay, math.MaxInt64-d.total)
		d.shortest, d.longest = min(d.shortest, delay), max(d.longest, delay)
	}
	return d
}

// errOver says that the delays are over.
var errOver = errors.New("delays are over")

// acquire waits for the lock for as long as the delays. It may return errOver,
// also together with the end of ctx.
func acquire(ctx context.Context, locker *redlock.Locker, name string, d delays, options []redlock.LockOption) (*redlock.Lock, error) {
	// Delays shorter than a try must not cut the first one short.
	ctx, cancel := context.WithTimeoutCause(ctx, max(d.total, minTimeout), errOver)
	defer cancel()
	return locker.Acquire(ctx, name, append(slices.Clip(options),
		redlock.WithRetryDelay(d.shortest, d.longest), redlock.WithOutageTolerance(math.MaxInt64))...)
}

// locked takes the outcome of locking.
func (m *Mutex) locked(ctx context.Context, k *redlock.Lock, err error) error {
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.holdLocked(k)
		return nil
	}
	if ctx.Err() == nil {
		if !errors.Is(err, redlock.ErrTaken) && !errors.Is(err, redlock.ErrNoQuorum) {
			return err // no matter of votes
		}
		if said := votes(err); said != nil {
			return said
		}
	}
	return fmt.Errorf("%w: %w", ErrFailed, err)
}

// holdLocked makes the lock that of the mutex.
func (m *Mutex) holdLocked(k *redlock.Lock) {
	m.lock, m.value, m.until = k, k.Token(), time.Now().Add(k.Validity())
}

// Unlock is [Mutex.UnlockContext] without a context.
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext unlocks m and reports whether a quorum of nodes held the lock
// until then. ctx bounds only the waiting: the lock is deleted even if it has
// ended.
//
// It returns [ErrLockAlreadyExpired] if no quorum had the lock any more, joined with
// *[RedisError] for each node that failed; what is left of it is deleted all the
// same. If too few nodes answered it returns those alone; the lock is still
// deleted where that is possible, on nodes that come back within the expiry, too,
// and Unlock may be called again.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	m.mu.Lock()
	k, value := m.lock, m.value
	m.lock = nil
	m.mu.Unlock()
	defer runtime.KeepAlive(m)

	ctx = orBackground(ctx)
	held := false
	switch {
	case k != nil && k.Validity() == 0:
		// Nobody else can have had the lock if a quorum still has the value:
		// that of this mutex, or extended by another with the value.
		held, _ = m.ask(ctx, value)
	case k == nil:
		var err error
		if k, err = m.resume(context.WithoutCancel(ctx), value); err != nil {
			if errors.Is(err, redlock.ErrLost) || errors.Is(err, redlock.ErrNoQuorum) {
				m.discard(value)
			}
			return m.unlocked(err)
		}
	}
	ok, err := m.unlocked(k.Release(ctx))
	if held && errors.Is(err, ErrLockAlreadyExpired) {
		return true, nil
	}
	return ok, err
}

func (m *Mutex) unlocked(err error) (bool, error) {
	switch said := broken(err); {
	case err == nil:
		return true, nil
	case errors.Is(err, redlock.ErrLost) && said == nil:
		return false, ErrLockAlreadyExpired // by itself: programs compare
	case errors.Is(err, redlock.ErrLost):
		return false, errors.Join(ErrLockAlreadyExpired, said)
	case errors.Is(err, redlock.ErrNoQuorum) && said != nil:
		return false, said
	}
	return false, err
}

// Extend is [Mutex.ExtendContext] without a context.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext begins the expiry anew and reports whether it has.
//
// It returns [ErrExtendFailed] without asking the nodes if the lock has ended,
// even if they still have it. If the nodes say that it has ended, it returns
// *[ErrTaken], and if too few answered, *[ErrNodeTaken] and *[RedisError]; then
// the lock stays valid for as long as it was. ctx bounds the waiting.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	m.mu.Lock()
	held, value := m.lock, m.value
	m.mu.Unlock()
	defer runtime.KeepAlive(m)

	ctx = orBackground(ctx)
	k, err := held, error(nil)
	if held != nil {
		err = held.Renew(ctx)
	} else {
		k, err = m.resume(ctx, value)
	}
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.lock == held && m.value == value { // or it was unlocked, or locked again, meanwhile
			m.holdLocked(k)
		}
		return true, nil
	}
	if ctx.Err() == nil {
		if said := votes(err); said != nil {
			return false, said
		}
	}
	return false, fmt.Errorf("%w: %w", ErrExtendFailed, err)
}

// Valid is [Mutex.ValidContext] without a context.
//
// Deprecated: the answer is old when it comes. Use Until.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext asks the nodes whether a quorum of them has the lock. It returns
// *[ErrNodeTaken] and *[RedisError] for those that have not, together with true
// if they are a minority, or *[ErrTaken]. For how long it waits for the last of
// them is said at [WithFailFast]. Once the validity is over it returns false
// without asking.
//
// Deprecated: the answer is old when it comes. Use Until.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	m.mu.Lock()
	k, value := m.lock, m.value
	m.mu.Unlock()
	defer runtime.KeepAlive(m)
	if k != nil && k.Validity() == 0 {
		return false, nil // the nodes may not know yet
	}
	return m.ask(orBackground(ctx), value)
}

// ask reads the key on all nodes.
func (m *Mutex) ask(ctx context.Context, value string) (bool, error) {
	locker, err := m.redsync.start()
	if err != nil {
		return false, err
	}
	seen, err := foreign.Look(ctx, locker, m.name)
	if err != nil {
		return false, err
	}
	c := census{quorum: m.quorum, out: cap(seen), errs: make([]error, cap(seen))}
	for c.out > 0 && !c.certain() {
		select {
		case s := <-seen:
			c.count(s, value)
		case <-ctx.Done():
			return false, errors.Join(append(c.errs, ctx.Err())...)
		}
	}
	if c.out > 0 && !m.failFast {
		rest, cancel := context.WithTimeout(ctx, foreign.Thoroughness(m.expiry))
		defer cancel()
		for c.out > 0 && rest.Err() == nil {
			select {
			case s := <-seen:
				c.count(s, value)
			case <-rest.Done():
			}
		}
	}
	return c.outcome()
}

// census counts which nodes have a value.
type census struct {
	quorum  int
	out     int // answers that have not come yet
	granted int
	taken   []int
	errs    []error // by node; nil for those that have it or have not answered
}

func (c *census) count(s foreign.Sight, value string) {
	c.out--
	switch {
	case s.Err != nil:
		c.errs[s.Node] = &RedisError{s.Node, s.Err}
	case s.Token == value && value != "":
		c.granted++
	default:
		c.taken = append(c.taken, s.Node)
		c.errs[s.Node] = &ErrNodeTaken{s.Node}
	}
}

// certain reports whether the answers that are out change nothing.
func (c *census) certain() bool { return c.granted >= c.quorum || len(c.taken) >= c.quorum }

func (c *census) outcome() (bool, error) {
	if len(c.taken) >= c.quorum {
		slices.Sort(c.taken)
		return false, &ErrTaken{c.taken}
	}
	return c.granted >= c.quorum, errors.Join(c.errs...)
}

// resume returns the lock that is held under a value. That it had to be
// extended for that is no harm.
func (m *Mutex) resume(ctx context.Context, value string) (*redlock.Lock, error) {
	locker, options, err := m.begin()
	if err != nil {
		return nil, err
	}
	if value == "" {
		return nil, fmt.Errorf("%w: never held", redlock.ErrLost)
	}
	return locker.Resume(ctx, []string{m.name}, value, options...)
}

// discard deletes what is left of a lock that could not be resumed.
func (m *Mutex) discard(value string) {
	foreign.Discard(m.redsync.core.locker, m.name, value, m.expiry)
}

// begin returns what it takes to begin an operation.
func (m *Mutex) begin() (*redlock.Locker, []redlock.LockOption, error) {
	locker, err := m.redsync.start()
	switch {
	case err != nil:
		return nil, nil, err
	case !(m.timeoutFactor > 0): // not NaN either
		return nil, nil, fmt.Errorf("%w: WithTimeoutFactor(%v): not positive", redlock.ErrConfig, m.timeoutFactor)
	}
	ttl := m.expiry.Truncate(time.Millisecond)
	ways := foreign.Ways{Thorough: !m.failFast, Shuffle: m.shuffle}
	if m.genValueFunc != nil {
		ways.Token = m.draw
	}
	return locker, []redlock.LockOption{
		redlock.WithTTL(ttl),
		redlock.WithDriftFactor(m.driftFactor),
		redlock.WithMinValidity(m.minValidity(ttl)),
		redlock.WithRefill(m.setNXOnExtend),
		foreign.Locking(ways).(redlock.LockOption),
	}, nil
}

// minValidity returns what is left of the lock after a try that took as long as
// it may.
func (m *Mutex) minValidity(ttl time.Duration) time.Duration {
	if m.timeoutFactor >= 1 {
		return 0
	}
	timeout := max(time.Duration(float64(ttl)*m.timeoutFactor), minTimeout)
	return max(clock.Deadline(0, ttl, m.driftFactor)-timeout, 0)
}

// draw makes the value of a try.
func (m *Mutex) draw() (string, error) {
	value, err := m.genValueFunc()
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if value == m.drawn && value != "" { // which is refused
		// The try before may still have to be undone, by its value.
		return value + "." + rand.Text(), nil
	}
	m.drawn = value
	return value, nil
}

func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
