package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
)

// How contenders behave.
const (
	ttl         = 2 * time.Second
	nodeTimeout = 250 * time.Millisecond
	minWork     = 10 * time.Millisecond
	maxWork     = 60 * time.Millisecond
	maxIdle     = 40 * time.Millisecond
	patience    = 3 * time.Second // with one call of Acquire
)

// contender wants the lock, again and again.
type contender struct {
	id       int
	label    string
	locker   *redlock.Locker
	name     string // of the lock
	resource *resource
	record   *record
	// attempts gets a value at the moment of each call of Acquire, if anybody
	// waits for it.
	attempts chan<- struct{}
}

// run contends until ctx ends.
func (c *contender) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.once(ctx)
		rest(ctx, rand.N(maxIdle))
	}
}

func (c *contender) once(ctx context.Context) {
	k, err := c.acquire(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.record.failed("acquire", err)
		}
		return
	}
	// Read in this order, the end is never earlier than what the holder
	// believes: a hold that is recorded too long cannot hide an overlap.
	left := k.Validity()
	until := c.record.now() + left

	from := c.record.now()
	c.resource.section(c, k, until)
	released := c.record.now()
	c.record.end(Hold{Contender: c.id, From: from, Until: min(released, until)})

	// The end of the demo is no reason to keep the lock.
	if err := k.Release(context.WithoutCancel(ctx)); err != nil {
		c.record.failed("release", err)
	}
}

func (c *contender) acquire(ctx context.Context) (*redlock.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.record.acquiring.Add(1)
	defer c.record.acquiring.Add(-1)
	select {
	case c.attempts <- struct{}{}:
	default:
	}
	began := c.record.now()
	k, err := c.locker.Acquire(ctx, c.name)
	if err == nil {
		now := c.record.now()
		c.record.begin(c.id, now, now-began)
	}
	return k, err
}

// resource is what the lock guards: a counter that two holders at once would
// spoil, and a door at which they would meet.
type resource struct {
	counter  atomic.Int64
	sections atomic.Int64
	met      atomic.Int64
	inside   atomic.Pointer[visit]
}

// visit is a holder inside the guarded section.
type visit struct {
	label string
	until time.Duration // the end of the lock's validity
}

// section raises the counter by one, in two steps with all of the work in
// between: whoever else raises it meanwhile is overwritten. The steps
// themselves are atomic only so that what is shown is a broken lock, and not
// undefined behaviour.
func (r *resource) section(c *contender, k *redlock.Lock, until time.Duration) {
	me := &visit{label: c.label, until: until}
	// Somebody whose lock has run out may not have left yet, which is their
	// right: all they must not do is write.
	if other := r.inside.Swap(me); other != nil && c.record.now() < other.until {
		r.met.Add(1)
		c.record.tell(event{text: c.label + " met " + other.label + " inside", alarm: true})
	}
	defer r.inside.CompareAndSwap(me, nil)

	counter := r.counter.Load()
	timer := time.NewTimer(minWork + rand.N(maxWork-minWork))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.Done():
	}
	// Timers of one process fire together, every millisecond. A release must
	// not keep that step: it has to come at any moment of another's attempt.
	for end := c.record.now() + rand.N(time.Millisecond); c.record.now() < end; {
		runtime.Gosched()
	}
	if err := k.Err(); err != nil {
		c.record.failed("hold", err)
		return
	}
	r.counter.Store(counter + 1)
	r.sections.Add(1)
}

func (r *resource) witness() Witness {
	return Witness{
		Sections: int(r.sections.Load()),
		Counter:  int(r.counter.Load()),
		Met:      int(r.met.Load()),
	}
}

// rest returns after d, or when ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// kinds says what kind of error it is: what the operation came to, and what
// each of the nodes that failed has contributed.
func kinds(op string, err error) []failure {
	all := []failure{{op, outcome(err)}}
	var quorum *redlock.QuorumError
	if errors.As(err, &quorum) {
		for _, n := range quorum.Nodes {
			if n.Err == nil {
				continue // it did as it was told
			}
			all = append(all, failure{op, n.Addr + ": " + cause(n.Err)})
		}
	}
	return all
}

func outcome(err error) string {
	for _, known := range []struct {
		err  error
		text string
	}{
		{redlock.ErrLost, "lock lost"},
		{redlock.ErrClosed, "locker closed"},
		{context.DeadlineExceeded, "gave up after " + patience.String()},
		{context.Canceled, "cancelled"},
		{redlock.ErrNoQuorum, "no quorum of nodes"},
		{redlock.ErrTaken, "others hold the lock"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	return err.Error()
}

func cause(err error) string {
	if errors.Is(err, pool.ErrTimeout) {
		return pool.ErrTimeout.Error()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
