package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/redlock"
)

// A figure is a line of the second table: what is no time per pair.
type figure struct {
	key, title   string
	ours, theirs string
	ratio        string
	value        float64 // ours, for the targets
	note         string
}

// A scene makes figures.
type scene struct {
	key, title string
	play       func(ctx context.Context) ([]figure, error)
	skip       string
}

// opener connects one client; clients of a scene stand for processes.
type opener func() (locks, error)

func openAll(open opener, n int) (all []locks, closeAll func() error, err error) {
	closeAll = func() error {
		var wg sync.WaitGroup
		errs := make([]error, len(all))
		for i, l := range all {
			wg.Go(func() { errs[i] = l.close() })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	for range n {
		l, err := open()
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		all = append(all, l)
	}
	return all, closeAll, nil
}

// handOffs lets two clients hand one lock to and fro, count times, on each of several names at once. A latency goes
// from the return of the release to the return of the acquire that waits.
func handOffs(ctx context.Context, open opener, names, count int) (latencies []time.Duration, err error) {
	clients, closeAll, err := openAll(open, 2)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards latencies and errs
		errs []error
	)
	for range names {
		wg.Go(func() {
			own, err := handToAndFro(ctx, clients, freshName(), count)
			mu.Lock()
			defer mu.Unlock()
			latencies, errs = append(latencies, own...), append(errs, err)
		})
	}
	wg.Wait()
	return latencies, errors.Join(errs...)
}

func handToAndFro(ctx context.Context, clients []locks, name string, count int) (latencies []time.Duration, err error) {
	k, err := clients[0].wait(ctx, name)
	if err != nil {
		return nil, err
	}
	type arrival struct {
		k   held
		err error
		at  time.Time
	}
	for i := range count {
		got := make(chan arrival, 1)
		go func() {
			next, err := clients[(i+1)%2].wait(ctx, name)
			got <- arrival{next, err, time.Now()}
		}()
		// Long enough that the other one has tried, in vain, and waits.
		time.Sleep(4 * time.Millisecond)
		if err := k.release(ctx); err != nil {
			return nil, err
		}
		released := time.Now()
		a := <-got
		if a.err != nil {
			return nil, a.err
		}
		// The waiter may be there before the release returns, as that awaits a quorum.
		latencies = append(latencies, max(0, a.at.Sub(released)))
		k = a.k
	}
	return latencies, k.release(ctx)
}

// spread lets contenders, spread over clients, take one lock in turns, and counts the acquisitions of each contender.
// Contender c belongs to client c modulo clients.
func spread(ctx context.Context, open opener, clients, contenders int, d time.Duration) (counts []int, rate float64, err error) {
	all, closeAll, err := openAll(open, clients)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	name := freshName()
	taken := make([]atomic.Int64, contenders)
	var failure atomic.Pointer[error]
	fail := func(err error) {
		if err != nil {
			failure.Store(&err)
		}
	}
	var wg sync.WaitGroup
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	start := time.Now()
	for c := range contenders {
		wg.Go(func() {
			l := all[c%clients]
			for limited.Err() == nil {
				k, err := l.wait(limited, name)
				if err != nil {
					if limited.Err() == nil {
						fail(err)
					}
					return
				}
				taken[c].Add(1)
				fail(k.release(ctx))
			}
		})
	}
	<-limited.Done()
	elapsed := time.Since(start)
	total := int64(0)
	for i := range taken {
		counts = append(counts, int(taken[i].Load()))
		total += taken[i].Load()
	}
	wg.Wait()
	if e := failure.Load(); e != nil {
		return nil, 0, *e
	}
	return counts, float64(total) / elapsed.Seconds(), nil
}

// shares returns the smallest and largest share of a client, over its ideal share, and how many contenders got nothing.
func shares(counts []int, clients int) (smallest, largest float64, starved int) {
	total, byClient := 0, make([]int, clients)
	for c, n := range counts {
		total += n
		byClient[c%clients] += n
		if n == 0 {
			starved++
		}
	}
	ideal := max(float64(total)/float64(clients), 1e-9)
	return float64(slices.Min(byClient)) / ideal, float64(slices.Max(byClient)) / ideal, starved
}

// inner are the commands that the scripts of all subjects call, which the nodes count like those of clients; and
// what this program sends itself.
var inner = []string{"get", "pttl", "del", "publish", "pexpire", "info"}

// commands counts what clients have sent to the nodes so far.
func commands(addrs []string) (n int64, err error) {
	for _, addr := range addrs {
		text, err := redis.String(command(addr, "INFO", "commandstats"))
		if err != nil {
			return 0, err
		}
		for line := range strings.SplitSeq(text, "\r\n") {
			name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			if !ok || slices.Contains(inner, name) {
				continue
			}
			calls, _, _ := strings.Cut(rest, ",")
			c, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("INFO of %s: %q: %w", addr, line, err)
			}
			n += c
		}
	}
	return n, nil
}

// waitingCost returns how many commands a second, to all nodes together, one of several waiters on a held lock costs.
func waitingCost(ctx context.Context, open opener, addrs []string, clients, waiters int, d time.Duration) (_ float64, err error) {
	all, closeAll, err := openAll(open, clients+1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	name := freshName()
	// Held for longer than the measurement takes: the waiters must not meet its end.
	k, err := all[clients].try(ctx, name)
	if err != nil {
		return 0, err
	}
	if err := k.renew(ctx); err != nil {
		return 0, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for w := range waiters {
		wg.Go(func() {
			if k, err := all[w%clients].wait(waiting, name); err == nil {
				_ = k.release(ctx) // the count is wrong then, and said to be below
			}
		})
	}
	time.Sleep(min(time.Second, d/2)) // the first tries and subscriptions are over
	before, err := commands(addrs)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	time.Sleep(d)
	after, err := commands(addrs)
	if err != nil {
		return 0, err
	}
	elapsed := time.Since(start)
	if waiting.Err() == nil {
		err = k.release(ctx) // says if it was lost meanwhile
	}
	cancel()
	wg.Wait()
	return float64(after-before) / elapsed.Seconds() / float64(waiters), err
}

// A growth is what pairs on a cluster with a hung node leave behind.
type growth struct {
	goroutines, peak int
	conns, dialled   int64
	heap             int64
	left             int64 // keys on the nodes that answer
	elapsed          time.Duration
	failures         int
}

func (g growth) String() string {
	return fmt.Sprintf("%+d goroutines (peak %+d), %d connections (%d dialled), heap %+.1f MiB, %d keys left; %s, %d failed",
		g.goroutines, g.peak, g.conns, g.dialled, float64(g.heap)/(1<<20), g.left, show(g.elapsed), g.failures)
}

func grow(ctx context.Context, open func(*dialer) (locks, error), live []string, count int) (g growth, err error) {
	d := &dialer{Dialer: netDialer()}
	for _, addr := range live {
		if _, err := command(addr, "FLUSHALL"); err != nil {
			return g, err
		}
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	base, baseHeap := runtime.NumGoroutine(), heap()
	l, err := open(d)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	var done, failures atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	const parallel = 16
	for range parallel {
		wg.Go(func() {
			for done.Add(1) <= int64(count) && ctx.Err() == nil {
				if pair(ctx, l, freshName()) != nil {
					failures.Add(1)
				}
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	for running := true; running; {
		select {
		case <-over:
			running = false
		case <-time.After(2 * time.Millisecond):
		}
		g.peak = max(g.peak, runtime.NumGoroutine()-base-parallel-1)
	}
	g.elapsed = time.Since(start)
	g.goroutines, g.conns, g.dialled = runtime.NumGoroutine()-base, d.open.Load(), d.total.Load()
	g.heap, g.failures = heap()-baseHeap, int(failures.Load())
	for _, addr := range live {
		n, err := redis.Int64(command(addr, "DBSIZE"))
		if err != nil {
			return g, err
		}
		g.left += n
	}
	return g, ctx.Err()
}

// scenes are those that compare waiting, and what is left behind.
func scenes(n *nodes, quick bool, progress func(string, ...any)) []scene {
	five := n.healthy[:min(5, len(n.healthy))]
	rounds, handed, span, pairsWanted := 5, 200, 2500*time.Millisecond, 10_000
	if quick {
		rounds, handed, span, pairsWanted = 1, 40, 400*time.Millisecond, 500
	}
	us, them := openedOurs(five), openedRedigo(five)
	all := []scene{{key: "hand-off", title: "hand-off between two processes", play: func(ctx context.Context) ([]figure, error) {
		const names = 8 // of redsync at once: its hand-offs are sleep, and would take minutes one by one
		var ours, theirs []time.Duration
		for range rounds {
			got, err := handOffs(ctx, us, 1, handed)
			if err != nil {
				return nil, err
			}
			ours = append(ours, got...)
			if got, err = handOffs(ctx, them, names, max(2, handed/12)); err != nil {
				return nil, err
			}
			theirs = append(theirs, got...)
		}
		line := func(key, what string, q float64) figure {
			a, b := quantile(ours, q), quantile(theirs, q)
			return figure{
				key: key, title: "hand-off between two processes, " + what, ours: show(a), theirs: show(b), ratio: ratio(float64(b) / float64(a)),
				value: a.Seconds(), note: fmt.Sprintf("%d and %d hand-offs", len(ours), len(theirs)),
			}
		}
		return []figure{line("hand-off-median", "median", 0.5), line("hand-off-p99", "p99", 0.99), line("hand-off-max", "longest", 1)}, nil
	}}, {key: "commands", title: "32 waiters on a held lock", play: func(ctx context.Context) (figures []figure, err error) {
		for _, clients := range []int{32, 1} {
			// Longer than the TTL would let: with it, the holder would have to be renewed.
			d := min(2*span, lockTTL*6/10)
			a, err := waitingCost(ctx, us, five, clients, 32, d)
			if err != nil {
				return nil, err
			}
			b, err := waitingCost(ctx, them, five, clients, 32, d)
			if err != nil {
				return nil, err
			}
			figures = append(figures, figure{
				key: fmt.Sprintf("commands-%d", clients), title: fmt.Sprintf("commands/s per waiter, 32 waiters in %d process%s", clients, strings.Repeat("es", min(1, clients-1))),
				ours: fmt.Sprintf("%.2f", a), theirs: fmt.Sprintf("%.2f", b), ratio: ratio(b / a), value: a, note: "to all five nodes together",
			})
		}
		return figures, nil
	}}, {key: "throughput", title: "contenders for one name", play: func(ctx context.Context) (figures []figure, err error) {
		for _, contenders := range []int{2, 8, 32, 256} {
			clients := min(8, contenders)
			var a, b []float64
			starved := [2]int{}
			for range min(rounds, 3) {
				for who, open := range []opener{us, them} {
					counts, rate, err := spread(ctx, open, clients, contenders, span/2)
					if err != nil {
						return nil, err
					}
					if who == 0 {
						a = append(a, rate)
					} else {
						b = append(b, rate)
					}
					_, _, s := shares(counts, clients)
					starved[who] = max(starved[who], s)
				}
			}
			f := figure{
				key: fmt.Sprintf("throughput-%d", contenders), title: fmt.Sprintf("acquisitions/s, %d contenders in %d processes", contenders, clients),
				ours: fmt.Sprintf("%.0f", median(a)), theirs: fmt.Sprintf("%.0f", median(b)), ratio: ratio(median(b) / median(a)), value: median(a),
				note: fmt.Sprintf("more is better; got nothing in %s: up to %d and %d of them", span/2, starved[0], starved[1]),
			}
			progress("    %s: %s, redsync %s", f.title, f.ours, f.theirs)
			figures = append(figures, f)
		}
		return figures, nil
	}}, {key: "fairness", title: "fairness", play: func(ctx context.Context) ([]figure, error) {
		show := func(open opener, d time.Duration) (text string, smallest float64, err error) {
			counts, _, err := spread(ctx, open, 8, 32, d)
			if err != nil {
				return "", 0, err
			}
			smallest, largest, starved := shares(counts, 8)
			return fmt.Sprintf("%.2f – %.2f, %d waiters got nothing", smallest, largest, starved), smallest, nil
		}
		a, smallest, err := show(us, 2*span)
		if err != nil {
			return nil, err
		}
		b, _, err := show(them, 2*span)
		if err != nil {
			return nil, err
		}
		return []figure{{
			key: "fairness", title: "share / ideal share, smallest – largest of 8 processes × 4 waiters", ours: a, theirs: b, ratio: "",
			value: smallest, note: fmt.Sprintf("in %s", 2*span),
		}}, nil
	}}}
	leak := scene{key: "growth", title: fmt.Sprintf("after %d pairs with a hung node", pairsWanted)}
	if n.sick == nil {
		leak.skip = "the nodes are not ours to stop"
	}
	leak.play = func(ctx context.Context) (_ []figure, err error) {
		if err := n.sick.hang(1); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, n.sick.wake(ctx)) }()
		live := n.sick.addrs[:4]
		ours, err := grow(ctx, func(d *dialer) (locks, error) { return openOurs(n.sick.addrs, redlock.WithDialer(d.dial)) }, live, pairsWanted)
		if err != nil {
			return nil, err
		}
		progress("    go-redlock: %s", ours)
		theirs, err := grow(ctx, func(d *dialer) (locks, error) {
			return openRedigo(n.sick.addrs, d, redsync.WithFailFast(true)), nil
		}, live, pairsWanted)
		if err != nil {
			return nil, err
		}
		progress("    redsync:    %s", theirs)
		return []figure{{
			key: "growth", title: leak.title + ", by 16 goroutines", ours: ours.String(), theirs: theirs.String(), value: float64(ours.peak),
			note: "redsync fail-fast: its default takes a second a pair",
		}}, nil
	}
	return append(all, leak)
}
