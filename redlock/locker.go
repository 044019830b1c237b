package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/pool"
)

// Limits on what is locked.
const (
	maxKey   = 1024 // bytes, prefix included
	maxNames = 128  // of one lock
)

// reserved is the space of keys that the library keeps for itself: fencing
// counters, and channels.
const reserved = "redlock:"

// Locker holds locks on a fixed set of nodes. It is safe for concurrent use,
// and meant to be made once and shared.
type Locker struct {
	config
	pools    []*pool.Pool
	order    []int // the nodes by name: the same for all clients
	ownPools bool
	timeout  time.Duration // the longest that a node may take to answer
	reclaims reclaims
	queues   queues
	watch    watch
	counted  counts
	twins    twins
	witness  witness

	closing chan struct{} // closed by Close
	shut    chan struct{} // closed when Close is done
	failed  error         // what Close returned

	mu     sync.RWMutex // guards closed, and so that nothing begins after it
	closed bool
	calls  sync.WaitGroup // of methods under way
}

// New returns a Locker on the nodes at addrs: an odd number of independent
// Redis masters, each "host:port", a redis://, rediss:// (TLS) or unix:// URL
// ([pool.ParseAddress] has the details). A single node makes a careful
// single-master lock; 3 or 5 survive the loss of 1 or 2.
//
// It does not connect: nodes are dialled on first use, so all may be down when
// New is called. Two addresses of one server are detected once both are
// connected; from then on every acquisition fails with ErrConfig, which names
// the two.
//
// New returns ErrConfig if an option or an address makes no sense. Call
// [Locker.Close] when done.
func New(addrs []string, opts ...Option) (*Locker, error) {
	l, err := newLocker(opts)
	if err != nil {
		return nil, err
	}
	l.ownPools = true
	for _, addr := range addrs {
		p, err := l.newPool(addr)
		if err != nil {
			return nil, refuse("node %d: %v", len(l.pools)+1, err)
		}
		l.pools = append(l.pools, p)
	}
	if err := l.checkNodes(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Locker) newPool(addr string) (*pool.Pool, error) {
	options := append(slices.Clone(l.config.pools), pool.WithClock(l.clock), pool.WithLogger(l.logger))
	if l.witness.on() {
		node := addr
		if a, err := pool.ParseAddress(addr); err == nil {
			node = a.String() // without secrets; what is wrong with it New will say
		}
		options = append(options, pool.WithMonitor(l.witness.monitor(node)))
	}
	return pool.New(addr, options...)
}

// NewWithPools returns a Locker on nodes that the caller has set up, one pool
// each. Options about reaching nodes (node timeout, restart guard, dialling)
// belong to the pools and are refused here. The pools may be shared between
// Lockers with the same clock, and remain the caller's to close, after the
// Locker.
func NewWithPools(pools []*pool.Pool, opts ...Option) (*Locker, error) {
	l, err := newLocker(opts)
	if err != nil {
		return nil, err
	}
	if l.dialling != "" {
		return nil, refuse("%s: belongs to the pools that are given", l.dialling)
	}
	if slices.Contains(pools, nil) {
		return nil, refuse("node %d: nil pool", slices.Index(pools, nil)+1)
	}
	l.pools = slices.Clone(pools)
	if err := l.checkNodes(); err != nil {
		return nil, err
	}
	return l, nil
}

func newLocker(opts []Option) (*Locker, error) {
	l := &Locker{config: defaults(), closing: make(chan struct{}), shut: make(chan struct{})}
	for i, o := range opts {
		if o == nil {
			return nil, refuse("option %d is nil", i+1)
		}
		o.apply(&l.config)
	}
	switch {
	case len(l.keyPrefix) >= maxKey:
		l.refuse("WithKeyPrefix(%.20q…): %d bytes leave no room for a name in a key of %d", l.keyPrefix, len(l.keyPrefix), maxKey)
	case strings.HasPrefix(l.keyPrefix, reserved):
		l.refuse("WithKeyPrefix(%q): keys that begin with %q are reserved", l.keyPrefix, reserved)
	}
	l.reclaims.locker, l.watch.locker, l.witness.observer = l, l, l.observer
	if err := l.validate(); err != nil {
		return nil, err
	}
	return l, nil
}

// checkNodes refuses a set of nodes on which majorities would mean nothing.
func (l *Locker) checkNodes() error {
	n := len(l.pools)
	switch {
	case n == 0:
		return refuse("no nodes")
	case n%2 == 0 && !l.anyNumber:
		return refuse("%d nodes: an even number survives no more failures than one node less; want an odd number", n)
	case n > maxNodes:
		return refuse("%d nodes: more than %d", n, maxNodes)
	}
	seen := make(map[string]int, n)
	for i, p := range l.pools {
		l.timeout = max(l.timeout, p.Timeout())
		endpoint := p.Endpoint()
		if endpoint == "" {
			endpoint = p.Name()
		}
		if first, twice := seen[endpoint]; twice {
			return refuse("nodes %d and %d are the same: %s", first+1, i+1, p.Name())
		}
		seen[endpoint] = i
	}
	l.order = make([]int, n)
	for i := range l.order {
		l.order[i] = i
	}
	slices.SortFunc(l.order, func(a, b int) int { return strings.Compare(l.pools[a].Name(), l.pools[b].Name()) })
	return nil
}

// Acquire gets the lock on name, waiting while others hold it until ctx ends.
//
// It returns ErrNoQuorum when too few nodes answered for longer than
// [WithOutageTolerance], or at once if they fail in a way that time does not
// mend; ErrTaken or ErrNoQuorum after [WithMaxAttempts]; the context's error,
// with its cause, when ctx ended, together with what the last attempt met;
// ErrConfig if the name or an option makes no sense; ErrClosed after Close.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...LockOption) (*Lock, error) {
	return l.lock(ctx, []string{name}, opts, true)
}

// TryAcquire makes exactly one attempt. It returns ErrTaken when others hold
// the lock and ErrNoQuorum when too few nodes answered; otherwise it returns
// what Acquire does. A refusal takes two round trips, where a grant takes one:
// nodes that refuse are asked why.
//
// Contenders that try in the same moment can split the votes, and then every
// one of them gets ErrTaken. Where somebody must get the lock, as for a job
// that starts on many replicas at once, use Acquire with a short deadline.
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...LockOption) (*Lock, error) {
	return l.lock(ctx, []string{name}, opts, false)
}

// AcquireAll gets the locks on all names at once, as one [Lock], or none of
// them, waiting as [Locker.Acquire] does. Order and duplicates do not matter,
// and two callers with overlapping names cannot deadlock: nobody holds some
// names while waiting for others. At most 128 names.
func (l *Locker) AcquireAll(ctx context.Context, names []string, opts ...LockOption) (*Lock, error) {
	return l.lock(ctx, slices.Clone(names), opts, true)
}

// TryAcquireAll is AcquireAll with exactly one attempt. The error's Held tells
// which of the names others hold.
func (l *Locker) TryAcquireAll(ctx context.Context, names []string, opts ...LockOption) (*Lock, error) {
	return l.lock(ctx, slices.Clone(names), opts, false)
}

// target is what a caller wants to lock, and how.
type target struct {
	names []string // sorted, each once
	keys  []string
	*lockConfig
}

func (l *Locker) lock(ctx context.Context, names []string, opts []LockOption, wait bool) (*Lock, error) {
	t, err := l.begin(ctx, "acquire", names, opts)
	if err != nil {
		return nil, err
	}
	defer l.calls.Done()
	if err := l.twins.check(l.pools); err != nil {
		return nil, err
	}
	began := l.witness.clock(l)
	var k *Lock
	if wait {
		k, err = l.persist(ctx, t)
	} else {
		k, err = l.attempt(ctx, t, together)
	}
	if err == nil {
		// Once more: the first lock may have opened the connections.
		if err = l.twins.check(l.pools); err != nil {
			k.giveBack(ctx)
		}
	}
	return l.handOut(k, t.names, began, err) //nolint:contextcheck // nobody waits for announcements
}

// begin begins a method, unless there is a reason to send nothing. If it
// returns no error, calls.Done ends the method.
func (l *Locker) begin(ctx context.Context, op string, names []string, opts []LockOption) (*target, error) {
	if !l.enter() {
		return nil, ErrClosed
	}
	t, err := l.target(names, opts)
	if err == nil {
		if ended := contextError(ctx); ended != nil {
			err = l.nothingSent(op, t.names, ended)
		}
	}
	if err != nil {
		l.calls.Done()
		return nil, err
	}
	return t, nil
}

// nothingSent is the error of an operation that ended before it began.
func (l *Locker) nothingSent(op string, names []string, ended error) *QuorumError {
	return &QuorumError{Op: op, Names: names, Quorum: quorum.Size(len(l.pools)), ended: ended}
}

func (l *Locker) target(names []string, opts []LockOption) (*target, error) {
	t := &target{names: names, lockConfig: &l.lockConfig}
	if len(opts) > 0 {
		own := l.lockConfig
		for i, o := range opts {
			if o == nil {
				return nil, refuse("option %d is nil", i+1)
			}
			o.applyLock(&own)
		}
		if err := own.validate(); err != nil {
			return nil, err
		}
		t.lockConfig = &own
	}
	if err := l.unguarded(t.lockConfig); err != nil {
		return nil, err
	}
	if len(names) > 1 {
		// One order for all, so that errors do not depend on the caller's.
		slices.Sort(names)
		t.names = slices.Compact(names)
	}
	if n := len(t.names); n == 0 || n > maxNames {
		return nil, refuse("%d names: want 1 to %d", n, maxNames)
	}
	t.keys = make([]string, len(t.names))
	for i, name := range t.names {
		key := l.keyPrefix + name
		switch {
		case name == "":
			return nil, refuse("empty name")
		case len(key) > maxKey:
			return nil, refuse("name %.20q…: its key is longer than %d bytes", name, maxKey)
		case strings.HasPrefix(key, reserved):
			return nil, refuse("name %q: keys that begin with %q are reserved", name, reserved)
		}
		t.keys[i] = key
	}
	return t, nil
}

// enter begins a method; it returns false if the Locker is closed. Otherwise
// calls.Done ends it.
func (l *Locker) enter() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return false
	}
	l.calls.Add(1)
	return true
}

func (l *Locker) isClosed() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.closed
}

// Close ends the Locker: methods that wait return ErrClosed, those that send
// finish, and what failed attempts and releases have left on the nodes is
// reclaimed for as long as two node timeouts. Then the connections are closed,
// unless they belong to pools that were given. It is idempotent.
//
// It does not release locks that are held: their keys end with their TTL,
// nothing renews them any more, and their Done channel closes at the deadline.
func (l *Locker) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.closing)
		l.failed = l.finish()
		close(l.shut)
	}
	<-l.shut // not a sync.Once: time would stand still in a bubble where two wait for it
	return l.failed
}

// finish waits for all that is under way, and closes the connections.
func (l *Locker) finish() error {
	l.calls.Wait()
	l.watch.wait()
	l.reclaims.close(2 * l.timeout)
	l.witness.close()
	if !l.ownPools {
		return nil
	}
	var all *multierror.Error
	for _, p := range l.pools {
		if err := p.Close(); err != nil {
			all = multierror.Append(all, &NodeError{Op: "close", Addr: p.Name(), Err: err})
		}
	}
	if err := inline(all); err != nil {
		return errors.New("redlock: " + err.Error())
	}
	return nil
}
