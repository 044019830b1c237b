package redsync

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/compat/redsync/redis"
	"github.com/redquorum/go-redlock/internal/foreign"
	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
)

// Redsync makes mutexes on a fixed set of nodes. It is safe for concurrent use.
// Make one and keep it: it holds a connection to each node. The zero value has no
// nodes, and its mutexes fail with [ErrFailed].
type Redsync struct {
	nodes   int
	core    *core
	err     error // why there is no core
	cleanup runtime.Cleanup
}

// core is what a Redsync runs on. It knows nothing of the Redsync, which can
// so be found to be used no more.
type core struct {
	locker *redlock.Locker
	nodes  []*pool.Pool
}

// New returns a Redsync on the nodes, which should be odd in number: an even
// number survives no more failures than one node less. It does not connect.
// What is wrong with the nodes is returned by every operation.
func New(pools ...redis.Pool) *Redsync {
	return newRedsync(pools, clock.System())
}

func newRedsync(pools []redis.Pool, source clock.Clock) *Redsync {
	r := &Redsync{nodes: len(pools)}
	c, err := newCore(pools, source)
	if err != nil {
		r.err = err
		return r
	}
	r.core = c
	// Programs that were written for redsync know no Close, and some make a
	// Redsync for each request. Those must not pile up while a node is sick, for
	// each looks for its return.
	r.cleanup = runtime.AddCleanup(r, func(c *core) { go func() { _ = c.close() }() }, c)
	return r
}

func newCore(pools []redis.Pool, source clock.Clock) (*core, error) {
	c := &core{}
	for i, p := range pools {
		if p == nil {
			return nil, errors.Join(fmt.Errorf("redsync: node #%d: nil pool", i), c.close())
		}
		node, err := p.Node(pool.WithClock(source))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("redsync: node #%d: %w", i, err), c.close())
		}
		c.nodes = append(c.nodes, node)
	}
	anyNumber := foreign.AnyNumber().(redlock.Option)
	locker, err := redlock.NewWithPools(c.nodes, anyNumber, redlock.WithClock(source))
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	c.locker = locker
	return c, nil
}

func (c *core) close() error {
	var errs []error
	if c.locker != nil {
		errs = append(errs, c.locker.Close())
	}
	for _, node := range c.nodes {
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}

// start returns the Locker, or why there is none.
func (r *Redsync) start() (*redlock.Locker, error) {
	switch {
	case r == nil || r.err == nil && r.core == nil: // nobody called New
		return nil, ErrFailed
	case r.err != nil:
		return nil, r.err
	}
	return r.core.locker, nil
}

// Close ends the Redsync, which redsync's has no method for: mutexes that wait,
// or are locked, extended or unlocked later, fail with [redlock.ErrClosed], and
// what failed attempts and unlocking have left on the nodes is seen to, for as
// long as two node timeouts. Locks that are held stay held until they expire.
// The redigo pools are not closed.
//
// A Redsync that is not used any more, nor any of its mutexes, closes itself
// some time later.
func (r *Redsync) Close() error {
	if r.core == nil {
		return nil
	}
	r.cleanup.Stop()
	return r.core.close()
}

// NewMutex returns a mutex of this name, which is the key that it has on the
// nodes.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{
		redsync:       r,
		name:          name,
		expiry:        8 * time.Second,
		tries:         32,
		delayFunc:     func(int) time.Duration { return 50*time.Millisecond + rand.N(200*time.Millisecond) },
		driftFactor:   0.01,
		timeoutFactor: 0.05,
		quorum:        quorum.Size(r.nodes),
	}
	for _, o := range options {
		o.Apply(m)
	}
	return m
}
