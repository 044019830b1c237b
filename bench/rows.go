package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/redquorum/go-redlock/redlock"
)

// A tally is what a subject did in one round.
type tally struct {
	ops, failures int
	elapsed       time.Duration
	failure       error // one of them
}

// work is an opened subject.
type work struct {
	run   func(ctx context.Context, d time.Duration) (tally, error)
	close func() error
}

// A subject is one column of a row.
type subject struct {
	name string
	open func() (work, error)
}

// A row compares subjects. They are opened and warmed up before anything is measured, and then take turns.
type row struct {
	key, title string
	unit       string // what an op is
	subjects   []subject
	rounds     int
	round      time.Duration // of one subject; one op at the least
	cold       bool          // no warm-up
	before     func() error  // after the warm-up
	after      func() error
	skip       string // why this row cannot be had
	note       string
}

// A result is what a row showed for one subject.
type result struct {
	subject  string
	perOp    []time.Duration // by round
	ops      int
	failures int
	failure  error
	allocs   float64 // per op, of everything in the process
}

func (r *result) median() time.Duration { return median(r.perOp) }

// over returns the median of the ratios r / base in each round. As rounds of all subjects alternate, that is more
// stable than the ratio of medians when the machine is busy with other things, too.
func (r *result) over(base *result) float64 {
	ratios := make([]float64, 0, len(r.perOp))
	for i := range min(len(r.perOp), len(base.perOp)) {
		ratios = append(ratios, float64(r.perOp[i])/float64(base.perOp[i]))
	}
	return median(ratios)
}

func median[T int64 | float64 | time.Duration](values []T) T {
	return quantile(values, 0.5)
}

func quantile[T int64 | float64 | time.Duration](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(math.Floor(q*float64(len(sorted)))))]
}

// inParallel calls op from goroutines, each with its number, until the time is over.
func inParallel(goroutines int, d time.Duration, op func(g int) error) tally {
	var (
		wg            sync.WaitGroup
		ops, failures atomic.Int64
		failure       atomic.Pointer[error]
	)
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			for first := true; first || time.Since(start) < d; first = false {
				if err := op(g); err != nil {
					failures.Add(1)
					failure.Store(&err)
					continue
				}
				ops.Add(1)
			}
		})
	}
	wg.Wait()
	t := tally{ops: int(ops.Load()), failures: int(failures.Load()), elapsed: time.Since(start)}
	if err := failure.Load(); err != nil {
		t.failure = *err
	}
	return t
}

// measure runs a row.
func measure(ctx context.Context, r *row, progress func(string, ...any)) (results []*result, err error) {
	var works []work
	defer func() {
		for _, w := range works {
			err = errors.Join(err, w.close())
		}
	}()
	for _, s := range r.subjects {
		w, err := s.open()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		works = append(works, w)
		results = append(results, &result{subject: s.name})
		if !r.cold {
			if _, err := w.run(ctx, r.round/2); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	if r.before != nil {
		if err := r.before(); err != nil {
			return nil, err
		}
	}
	if r.after != nil {
		defer func() { err = errors.Join(err, r.after()) }()
	}
	allocs := make([]uint64, len(works))
	for i := range r.rounds {
		for j := range works {
			// Each round begins with another subject, lest one always follows the same other.
			at := (i + j) % len(works)
			res := results[at]
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			t, err := works[at].run(ctx, r.round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", res.subject, err)
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			runtime.ReadMemStats(&after)
			allocs[at] += after.Mallocs - before.Mallocs
			res.ops += t.ops
			res.failures += t.failures
			if t.failure != nil {
				res.failure = t.failure
			}
			res.perOp = append(res.perOp, t.elapsed/time.Duration(max(1, t.ops)))
		}
	}
	for i, res := range results {
		res.allocs = float64(allocs[i]) / float64(max(1, res.ops))
		progress("    %-22s %10s  %6.0f allocs  %7d ops  %d failed %s", res.subject, show(res.median()), res.allocs, res.ops,
			res.failures, oneLine(res.failure))
	}
	return results, nil
}

// pairs opens a library and lets goroutines make pairs.
func pairs(name string, goroutines int, open func() (locks, error)) subject {
	return of(name, goroutines, open, func(ctx context.Context, l locks, _ int) error {
		return pair(ctx, l, freshName())
	})
}

func of(name string, goroutines int, open func() (locks, error), op func(ctx context.Context, l locks, g int) error) subject {
	return subject{name, func() (work, error) {
		l, err := open()
		if err != nil {
			return work{}, err
		}
		return work{
			run: func(ctx context.Context, d time.Duration) (tally, error) {
				return inParallel(goroutines, d, func(g int) error { return op(ctx, l, g) }), nil
			},
			close: l.close,
		}, nil
	}}
}

// firstPairs opens a library anew for each pair.
func firstPairs(name string, open func() (locks, error)) subject {
	return subject{name, func() (work, error) {
		return work{
			run: func(ctx context.Context, _ time.Duration) (t tally, _ error) {
				l, err := open()
				if err != nil {
					return t, err
				}
				start := time.Now()
				err = pair(ctx, l, freshName())
				t.elapsed = time.Since(start)
				if err != nil {
					t.failures, t.failure = 1, err
				} else {
					t.ops = 1
				}
				return t, l.close()
			},
			close: func() error { return nil },
		}, nil
	}}
}

// renewals takes a lock per goroutine once, and renews it.
func renewals(name string, open func() (locks, error)) subject {
	return subject{name, func() (work, error) {
		l, err := open()
		if err != nil {
			return work{}, err
		}
		return work{
			run: func(ctx context.Context, d time.Duration) (tally, error) {
				k, err := l.try(ctx, freshName())
				if err != nil {
					return tally{}, err
				}
				t := inParallel(1, d, func(int) error { return k.renew(ctx) })
				return t, k.release(ctx)
			},
			close: l.close,
		}, nil
	}}
}

func floorLoop(goroutines int, addrs []string) subject {
	return subject{nameFloor, func() (work, error) {
		f, err := openFloor(addrs, goroutines, false)
		if err != nil {
			return work{}, err
		}
		return work{func(_ context.Context, d time.Duration) (tally, error) { return f.loop(goroutines, d) }, f.close}, nil
	}}
}

func floorEach(goroutines int, addrs []string) subject {
	return subject{nameFloorEach, func() (work, error) {
		f, err := openFloor(addrs, goroutines, true)
		if err != nil {
			return work{}, err
		}
		return work{func(_ context.Context, d time.Duration) (tally, error) { return f.each(goroutines, d) }, f.close}, nil
	}}
}

func openedOurs(addrs []string, opts ...redlock.Option) func() (locks, error) {
	return func() (locks, error) { return openOurs(addrs, opts...) }
}

func openedRedigo(addrs []string, options ...redsync.Option) func() (locks, error) {
	return func() (locks, error) { return openRedigo(addrs, nil, options...), nil }
}

// subjectsAt are all who can make pairs on these nodes, by so many goroutines.
func subjectsAt(goroutines int, addrs []string) []subject {
	return []subject{
		pairs(nameOurs, goroutines, openedOurs(addrs)),
		floorLoop(goroutines, addrs),
		floorEach(goroutines, addrs),
		pairs(nameFailFast, goroutines, openedRedigo(addrs, redsync.WithFailFast(true))),
		pairs(nameRedsync, goroutines, openedRedigo(addrs)),
		pairs(nameGoRedis, goroutines, func() (locks, error) { return openGoRedis(addrs, goroutines), nil }),
		pairs(nameBSM, goroutines, func() (locks, error) { return openBSM(addrs[0], goroutines), nil }),
	}
}

// ten are the names of one AcquireAll.
func ten() []string {
	names := make([]string, 10)
	for i := range names {
		names[i] = freshName()
	}
	return names
}

func oneByOne(ctx context.Context, l locks, _ int) error {
	var got []held
	var errs []error
	for _, name := range ten() {
		k, err := l.try(ctx, name)
		if err != nil {
			errs = append(errs, err)
			break
		}
		got = append(got, k)
	}
	for _, k := range got {
		errs = append(errs, k.release(ctx))
	}
	return errors.Join(errs...)
}

func allAtOnce(ctx context.Context, l locks, _ int) error {
	k, err := l.(*ours).locker.TryAcquireAll(ctx, ten())
	if err != nil {
		return err
	}
	return k.Release(ctx)
}

// nodes are what the rows run on.
type nodes struct {
	healthy []string // seven, or what REDLOCK_NODES names
	sick    *cluster // five that may be hung; nil if the nodes are not ours
	far     []string // five, one of which is 20 ms away
}

// pairRows are the rows that compare pairs, in the order of the table.
func pairRows(ctx context.Context, n *nodes, quick bool) []*row {
	five := n.healthy[:min(5, len(n.healthy))]
	rounds, short := 9, 250*time.Millisecond
	if quick {
		rounds, short = 3, 50*time.Millisecond
	}
	var rows []*row
	add := func(r *row) *row {
		if r.rounds == 0 {
			r.rounds = rounds
		}
		if r.round == 0 {
			r.round = short
		}
		if r.unit == "" {
			r.unit = "pair"
		}
		rows = append(rows, r)
		return r
	}
	add(&row{key: "pair-1", title: "1 goroutine", subjects: subjectsAt(1, five)})
	add(&row{key: "pair-64", title: "64 goroutines", subjects: subjectsAt(64, five)})
	add(&row{key: "pair-512", title: "512 goroutines", subjects: subjectsAt(512, five), round: 2 * short})
	for _, count := range []int{3, 7} {
		for _, g := range []int{1, 64} {
			r := add(&row{
				key: fmt.Sprintf("nodes-%d-%d", count, g), title: fmt.Sprintf("%d nodes, %d goroutine%s", count, g, plural(g)),
				rounds: min(rounds, 7),
			})
			if len(n.healthy) < count {
				r.skip = fmt.Sprintf("there are only %d nodes", len(n.healthy))
				continue
			}
			r.subjects = slices.DeleteFunc(subjectsAt(g, n.healthy[:count]), func(s subject) bool {
				return s.name == nameBSM || s.name == nameGoRedis
			})
		}
	}
	for hung := 1; hung <= 2; hung++ {
		steady := add(&row{key: fmt.Sprintf("hung-%d", hung), title: fmt.Sprintf("%d of 5 nodes hung", hung), rounds: min(rounds, 5)})
		busy := add(&row{
			key: fmt.Sprintf("hung-%d-64", hung), title: fmt.Sprintf("%d of 5 nodes hung, 64 goroutines", hung), rounds: min(rounds, 5),
		})
		first := add(&row{
			key: fmt.Sprintf("hung-%d-first", hung), title: fmt.Sprintf("%d of 5 nodes hung, the very first pair", hung),
			rounds: min(rounds, 5), cold: true, note: "connecting included",
		})
		if n.sick == nil {
			steady.skip, busy.skip, first.skip = "the nodes are not ours to stop", "the nodes are not ours to stop", "the nodes are not ours to stop"
			continue
		}
		sick := n.sick.addrs
		for _, r := range []*row{steady, busy, first} {
			r.before = func() error { return n.sick.hang(hung) }
			r.after = func() error { return n.sick.wake(ctx) }
		}
		steady.subjects = []subject{
			pairs(nameOurs, 1, openedOurs(sick)),
			pairs(nameHealthy, 1, openedOurs(five)),
			pairs(nameFailFast, 1, openedRedigo(sick, redsync.WithFailFast(true))),
			pairs(nameRedsync, 1, openedRedigo(sick)),
		}
		busy.subjects = []subject{
			pairs(nameOurs, 64, openedOurs(sick)),
			pairs(nameHealthy, 64, openedOurs(five)),
		}
		first.subjects = []subject{
			firstPairs(nameOurs, openedOurs(sick)),
			firstPairs(nameHealthy, openedOurs(five)),
			firstPairs(nameFailFast, openedRedigo(sick, redsync.WithFailFast(true))),
			firstPairs(nameRedsync, openedRedigo(sick)),
		}
	}
	far := add(&row{key: "far", title: "1 of 5 nodes 20 ms away", rounds: min(rounds, 5)})
	far.subjects = []subject{
		pairs(nameOurs, 1, openedOurs(n.far)),
		pairs(nameHealthy, 1, openedOurs(five)),
		pairs(nameFailFast, 1, openedRedigo(n.far, redsync.WithFailFast(true))),
		pairs(nameRedsync, 1, openedRedigo(n.far)),
	}
	add(&row{key: "renew", title: "renewal, 1 goroutine", unit: "renewal", rounds: min(rounds, 7), subjects: []subject{
		renewals(nameOurs, openedOurs(five)),
		renewals(nameFailFast, openedRedigo(five, redsync.WithFailFast(true))),
		renewals(nameRedsync, openedRedigo(five)),
		renewals(nameGoRedis, func() (locks, error) { return openGoRedis(five, 1), nil }),
		renewals(nameBSM, func() (locks, error) { return openBSM(five[0], 1), nil }),
	}})
	for _, g := range []int{1, 64} {
		add(&row{key: fmt.Sprintf("fencing-%d", g), title: fmt.Sprintf("fencing, %d goroutine%s", g, plural(g)), rounds: min(rounds, 7), subjects: []subject{
			pairs(nameOurs, g, openedOurs(five)),
			pairs(nameFencing, g, openedOurs(five, redlock.WithFencing(true))),
		}})
	}
	add(&row{key: "ten", title: "10 names at once, 1 goroutine", unit: "ten pairs", rounds: min(rounds, 5), subjects: []subject{
		of(nameOursTenAll, 1, openedOurs(five), allAtOnce),
		of(nameOneByOne, 1, openedOurs(five), oneByOne),
		of(nameTheirTen, 1, openedRedigo(five), oneByOne),
	}})
	return rows
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
