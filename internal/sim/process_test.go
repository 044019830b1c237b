package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/go-redlock/redlock"
)

// A process is a program with one Locker, in which one or two workers lock and
// unlock.
type process struct {
	*world
	number int
	clock  *wrongClock
	locker *redlock.Locker
	closed atomic.Bool // Close was called

	pointsMu sync.Mutex // guards what follows; nodes call with their mutexes held
	points   []*point
}

// A point is a number of packets from now, and what is done there.
type point struct {
	left int
	do   func()
}

func (p *process) String() string { return fmt.Sprint("client ", p.number+1) }

// at does something between any two packets.
func (p *process) at(packets int, do func()) {
	p.pointsMu.Lock()
	defer p.pointsMu.Unlock()
	p.points = append(p.points, &point{packets, do})
}

func (p *process) moved() {
	p.pointsMu.Lock()
	var due []func()
	p.points = slices.DeleteFunc(p.points, func(at *point) bool {
		at.left--
		if at.left > 0 {
			return false
		}
		due = append(due, at.do)
		return true
	})
	p.pointsMu.Unlock()
	for _, do := range due {
		do()
	}
}

// live is what a worker does.
func (p *process) live(r *rand.Rand) {
	if p.closes && r.IntN(2) == 0 {
		closing := make(chan struct{})
		p.at(1+r.IntN(150), func() { close(closing) })
		over := make(chan struct{})
		var closer sync.WaitGroup
		closer.Go(func() {
			select {
			case <-closing:
				p.count("closed in the middle")
				p.close()
			case <-over:
			}
		})
		defer closer.Wait()
		defer close(over)
	}
	for range 2 + r.IntN(4) {
		time.Sleep(between(r, 0, 12*time.Millisecond))
		if r.IntN(6) == 0 {
			p.clock.set(between(r, -time.Hour, time.Hour))
			p.log(p.String(), "sets its wall clock")
		}
		if r.IntN(5) == 0 {
			p.do(r)
		} else if h := p.acquire(r); h != nil {
			p.use(r, h)
		}
	}
}

// A caller is a context that ends some time, and when it did.
type caller struct {
	context.Context
	end   context.CancelFunc
	ended atomic.Int64 // nanoseconds since the origin; 0: not yet
}

// caller draws a context: of one who has gone away already, or goes away
// between any two packets, or in a moment, or after a while.
func (p *process) caller(r *rand.Rand) *caller {
	c := &caller{}
	patience := between(r, 20*time.Millisecond, 300*time.Millisecond)
	if r.IntN(6) == 0 {
		patience = between(r, 0, 3*time.Millisecond)
	}
	c.Context, c.end = context.WithTimeout(context.Background(), patience)
	context.AfterFunc(c, func() { c.ended.CompareAndSwap(0, int64(time.Since(p.origin))) })
	switch roll := r.IntN(20); {
	case roll == 0:
		c.end()
		time.Sleep(time.Microsecond)
	case roll < 8:
		p.at(1+r.IntN(30), c.end)
	}
	return c
}

// over says that the caller's call has returned, and judges when.
func (c *caller) over(p *process, what string) {
	if ended := time.Duration(c.ended.Load()); ended > 0 && !p.pauses {
		if late := time.Since(p.origin) - ended; late > time.Millisecond {
			p.violated("%s: %s returned %v after its context had ended", p, what, late)
		}
	}
	c.end()
}

// acquire tries to get a lock.
func (p *process) acquire(r *rand.Rand) *holder {
	names := []string{pick(r, allNames[:2])}
	if r.IntN(4) == 0 {
		names = nil
		for _, i := range r.Perm(len(allNames))[:1+r.IntN(len(allNames))] {
			names = append(names, allNames[i])
		}
	}
	one := len(names) == 1 && r.IntN(2) == 0
	ttl := pick(r, p.ttls())
	h := &holder{process: p, ttl: ttl}
	options := []redlock.LockOption{redlock.WithTTL(ttl), redlock.WithRefill(r.IntN(4) > 0)}
	if h.renewed = r.IntN(4) == 0; h.renewed {
		options = append(options, redlock.WithAutoRenew(true))
		if r.IntN(2) == 0 {
			h.bounded = true
			options = append(options, redlock.WithMaxHold(between(r, 30*time.Millisecond, 200*time.Millisecond)))
		}
	}
	if r.IntN(4) == 0 && !h.bounded {
		options = append(options, redlock.WithMinValidity(ttl/2))
	}

	how, tries := "AcquireAll", false
	attempt := func(ctx context.Context) (*redlock.Lock, error) { return p.locker.AcquireAll(ctx, names, options...) }
	switch roll := r.IntN(10); {
	case roll < 3 && one:
		how = "Acquire"
		attempt = func(ctx context.Context) (*redlock.Lock, error) { return p.locker.Acquire(ctx, names[0], options...) }
	case roll < 3:
	case one:
		how, tries = "TryAcquire", true
		attempt = func(ctx context.Context) (*redlock.Lock, error) {
			return p.locker.TryAcquire(ctx, names[0], options...)
		}
	default:
		how, tries = "TryAcquireAll", true
		attempt = func(ctx context.Context) (*redlock.Lock, error) {
			return p.locker.TryAcquireAll(ctx, names, options...)
		}
	}
	ctx := p.caller(r)
	before := p.begin(p, how, names)
	k, err := attempt(ctx)
	if ended := time.Duration(ctx.ended.Load()); err == nil && ended > 0 && time.Since(p.origin) > ended {
		p.violated("%s: %s handed a lock to somebody who had given up", p, how)
	}
	ctx.over(p, how)
	if tries && !p.pauses && time.Since(before.at) > 3*nodeTimeout {
		p.violated("%s: %s took %v", p, how, time.Since(before.at))
	}
	return p.acquired(h, k, err, before)
}

// do calls Do.
func (p *process) do(r *rand.Rand) {
	name := pick(r, allNames[:2])
	h := &holder{process: p, ttl: pick(r, p.ttls()), renewed: true}
	ctx := p.caller(r)
	before := p.begin(p, "Do", []string{name})
	failure, panics, ran, returns := error(nil), false, false, error(nil)
	var until time.Time
	func() {
		defer func() {
			if got := recover(); got != nil && !panics {
				panic(got)
			}
		}()
		failure = p.locker.Do(ctx, name, func(inner context.Context, k *redlock.Lock) error {
			ran, h.context = true, inner
			p.count("Do")
			p.acquired(h, k, nil, before)
			time.Sleep(between(r, 0, 60*time.Millisecond))
			if inner.Err() != nil && ctx.Err() == nil && k.Err() == nil && k.Validity() > 0 {
				p.violated("%s: the context of Do ended, but the lock has not", p)
			}
			until = h.until()
			if panics = r.IntN(6) == 0; panics {
				panic(errOfGuarded)
			}
			returns = pick(r, []error{nil, errOfGuarded})
			return returns
		}, redlock.WithTTL(h.ttl))
	}()
	ctx.end()
	p.log(p.String(), "Do [%s]: %v", name, outcome{failure})
	if !ran {
		p.failed(p, failure, before)
		return
	}
	if !panics && returns != nil && !errors.Is(failure, returns) {
		p.violated("%s: Do returned %v, and not %v", p, outcome{failure}, outcome{returns})
	}
	p.lostTruly(h, failure, until)
	p.undecided(p, h, failure, until)
	p.released(h, failure)
}

var errOfGuarded = errors.New("what was done under the lock failed")

// use does something with a lock, and gives it up in one way or another.
func (p *process) use(r *rand.Rand, h *holder) {
	if r.IntN(2) == 0 {
		ctx, stop := h.Context(context.Background())
		defer stop()
		h.context = ctx
		h.watch()
	}
	for range r.IntN(4) {
		rest := between(r, 0, 25*time.Millisecond)
		if r.IntN(4) == 0 && !p.long { // until the last moment
			rest = h.Validity() - between(r, 0, 2*time.Millisecond)
		}
		time.Sleep(rest)
		switch {
		case r.IntN(3) > 0 || h.renewed:
			h.process.renew(r, h)
		case r.IntN(4) == 0:
			h = p.handOnTwice(r, h)
		default:
			h = p.handOn(r, h)
		}
	}
	time.Sleep(between(r, 0, 15*time.Millisecond))
	switch roll := r.IntN(8); {
	case roll == 0 && !p.long && (!h.renewed || h.bounded):
		p.log(h.process.String(), "forgets %v", h.Names())
		return
	case roll == 1 && (!p.long && !h.renewed || h.bounded): // held for longer than it lasts
		time.Sleep(h.Validity() + between(r, 0, 5*time.Millisecond))
		if errors.Is(h.Err(), redlock.ErrLost) {
			p.count("lost")
		}
	}
	if r.IntN(6) == 0 {
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Renew(context.Background()) })
		wg.Go(func() { h.process.release(r, h) })
		wg.Wait()
	}
	h.process.release(r, h)
}

func (p *process) renew(r *rand.Rand, h *holder) {
	ctx := p.caller(r)
	ended, until := h.Err(), h.until()
	err := h.Renew(ctx)
	ctx.over(p, "Renew")
	p.log(p.String(), "Renew %v: %v", h.Names(), outcome{err})
	switch {
	case err == nil && ended != nil:
		p.violated("%s renewed %v, which had ended: %v", p, h.Names(), ended)
	case err == nil && !h.renewed && time.Since(until) > time.Microsecond:
		p.violated("%s renewed %v, which ended %v ago", p, h.Names(), time.Since(until))
	case err == nil:
		p.count("renewed")
	default:
		p.lostTruly(h, err, until)
		p.undecided(p, h, err, until)
	}
	p.look()
}

// handOn hands a lock to a process, perhaps this one, and returns who holds it
// then.
func (p *process) handOn(r *rand.Rand, h *holder) *holder {
	if again := pick(r, p.processes[1:]).resume(r, h, false); again != nil {
		return again
	}
	return h
}

// handOnTwice hands a lock to two at once, which is a mistake; their fencing
// numbers tell them apart all the same. It returns who was the last to get it.
func (p *process) handOnTwice(r *rand.Rand, h *holder) *holder {
	p.count("handed to two")
	var both sync.WaitGroup
	for range 2 {
		to, seed := pick(r, p.processes[1:]), r.Uint64()
		both.Go(func() { to.resume(rand.New(rand.NewPCG(seed, 0)), h, true) })
	}
	both.Wait()
	return p.holderOf(h.Token())
}

// resume takes over a lock that a process holds, perhaps this one.
func (p *process) resume(r *rand.Rand, h *holder, twin bool) *holder {
	ctx := p.caller(r)
	again := &holder{process: p, ttl: pick(r, p.ttls())}
	options := []redlock.LockOption{redlock.WithTTL(again.ttl)}
	// The other of two would renew it for ever, not knowing that it is not theirs.
	if again.renewed = !twin && r.IntN(4) == 0; again.renewed {
		options = append(options, redlock.WithAutoRenew(true))
	}
	until := h.until()
	c := p.begin(p, "Resume", h.Names())
	c.resumes, c.twin = true, twin
	k, err := p.locker.Resume(ctx, h.Names(), h.Token(), options...)
	ctx.over(p, "Resume")
	if err != nil {
		p.lostTruly(h, err, until)
		p.undecided(p, h, err, until)
	}
	return p.acquired(again, k, err, c)
}

// release releases, and judges that it is over then.
func (p *process) release(r *rand.Rand, h *holder) {
	ctx := p.caller(r)
	defer ctx.end()
	until := h.until()
	p.log(p.String(), "Release %v", h.Names())
	err := h.Release(ctx)
	ctx.over(p, "Release")
	p.log(p.String(), "Release %v: %v", h.Names(), outcome{err})
	p.lostTruly(h, err, until)
	p.undecided(p, h, err, until)
	p.released(h, err)
}

// close closes the Locker, and judges that it is over then. Both workers may do
// so at once.
func (p *process) close() {
	p.closed.Store(true)
	p.log(p.String(), "Close")
	began := time.Now()
	err := p.locker.Close()
	took := time.Since(began)
	p.log(p.String(), "Close: %v", outcome{err})
	if took > closeBound && !p.pauses {
		p.violated("%s: Close took %v", p, took)
	}
	if n := p.cluster.Connections(p.number); n > 0 {
		p.violated("%s: %d connections after Close", p, n)
	}
	if _, err := p.locker.TryAcquire(context.Background(), "a"); !errors.Is(err, redlock.ErrClosed) {
		p.violated("%s: TryAcquire after Close: %v", p, outcome{err})
	}
}

// closeBound is how long Close may take: a release may be waiting for its last
// node timeout, and then what is to be undone has two.
const closeBound = 4 * nodeTimeout
