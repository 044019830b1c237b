package sim_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/redlock"
)

const (
	// settled is how long after the last trouble everything is undone: clients
	// look for a node every half second, and repeat a release every second.
	settled = 3 * time.Second
	// progress is how soon everybody who waits has had the lock once, when a
	// majority is well and nobody holds it for longer than a few milliseconds.
	progress = 2 * time.Second
	// handover is how soon somebody who waits has the lock once it was released,
	// on a network that works, however seldom they poll.
	handover = 25 * time.Millisecond
	// relistening is how much later that may be if the announcement was lost with
	// the connections: there is a pause before the next attempt to listen.
	relistening = 150 * time.Millisecond
)

// finish judges what there is to be judged when the troubles are over.
func (w *world) finish(r *rand.Rand) {
	w.log("all", "is well")
	all := r.Perm(w.nodes)
	time.Sleep(settled)
	w.look()
	w.nothingLeft(all)
	time.Sleep(slices.Max(w.ttls()) + settled) // nobody holds anything then, and no vote is in doubt
	for _, p := range w.processes {
		if n := p.locker.Stat().Reclaiming; n > 0 && !p.closed.Load() {
			w.violated("%s is still about to undo %d votes", p, n)
		}
	}

	mend := func() {}
	if w.reach != noNode {
		mend = w.fallSick(r)
	}
	w.everybodyGetsIt(r)
	mend()
	time.Sleep(settled)
	w.nothingLeft(all)
	if w.steady {
		w.handOver(r)
		w.part(r)
		w.nothingLeft(all)
	}
	for _, p := range w.processes {
		if !p.closed.Load() {
			p.close()
		}
	}
	w.look()
	for _, p := range w.processes {
		if n := w.cluster.Connections(p.number); n > 0 {
			w.violated("%s: %d connections after Close", p, n)
		}
	}
}

// fallSick makes something happen to the nodes of a minority that lasts.
func (w *world) fallSick(r *rand.Rand) (mend func()) {
	var mends []func()
	for _, node := range w.sick {
		trouble, mend := w.trouble(r, node)
		w.log("node", "%d %s", node+1, trouble)
		mends = append(mends, mend)
	}
	return func() {
		for _, mend := range mends {
			mend()
		}
	}
}

func (w *world) open() []*process {
	var open []*process
	for _, p := range w.processes {
		if !p.closed.Load() {
			open = append(open, p)
		}
	}
	return open
}

// everybodyGetsIt judges progress: all want the same lock, and one of them is a
// newcomer.
func (w *world) everybodyGetsIt(r *rand.Rand) {
	began := time.Now()
	var all sync.WaitGroup
	for _, p := range w.open() {
		holds := between(r, 0, 3*time.Millisecond)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), progress)
			defer cancel()
			h := &holder{process: p, ttl: w.within(time.Second)}
			c := w.begin(p, "Acquire", allNames[:1])
			k, err := p.locker.Acquire(ctx, "a", redlock.WithTTL(h.ttl), redlock.WithOutageTolerance(progress))
			if err != nil {
				w.violated("%s does not get the lock within %v: %v", p, time.Since(began), err)
				return
			}
			w.acquired(h, k, nil, c)
			w.count("got it in the end")
			time.Sleep(holds)
			w.released(h, k.Release(ctx))
		})
	}
	all.Wait()
}

// handOver judges how soon a lock that is released is somebody else's, whenever
// they began to wait for it. It takes two.
func (w *world) handOver(r *rand.Rand) {
	open := w.open()
	if len(open) < 2 {
		return
	}
	r.Shuffle(len(open), func(i, k int) { open[i], open[k] = open[k], open[i] })
	giver, taker := open[0], open[1]
	const name = "handed over"
	k, err := giver.locker.Acquire(context.Background(), name, redlock.WithTTL(w.within(time.Minute)))
	if err != nil {
		w.violated("%s does not get %q: %v", giver, name, err)
		return
	}
	given, wanted, bound := between(r, 0, 8*time.Millisecond), between(r, 0, 8*time.Millisecond), handover
	if r.IntN(3) == 0 {
		given, bound = between(r, 8*time.Millisecond, 16*time.Millisecond), handover+relistening
		time.AfterFunc(given-between(r, 0, time.Millisecond), func() {
			w.log("all nodes", "reset the connections of listeners")
			for node := range w.nodes {
				w.cluster.Node(node).CutListeners()
			}
		})
	}
	var both sync.WaitGroup
	both.Go(func() {
		time.Sleep(given)
		w.log(giver.String(), "hands over: %v", outcome{k.Release(context.Background())})
	})
	both.Go(func() {
		time.Sleep(wanted)
		w.log(taker.String(), "Acquire [%s]", name)
		ctx, cancel := context.WithTimeout(context.Background(), max(0, given-wanted)+bound)
		defer cancel()
		k, err := taker.locker.Acquire(ctx, name, redlock.WithTTL(w.within(time.Minute)), redlock.WithRetryDelay(10*time.Second, 10*time.Second))
		if err != nil {
			w.violated("%s does not get %q within %v of its release: %v", taker, name, bound, err)
			return
		}
		w.count("handed over")
		_ = k.Release(context.Background())
	})
	both.Wait()
}

// part makes everybody try something and close at once, before it is done or
// undone.
func (w *world) part(r *rand.Rand) {
	var all sync.WaitGroup
	for _, p := range w.open() {
		seed := r.Uint64()
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 0))
			ctx := p.caller(r)
			defer ctx.end()
			h := &holder{process: p, ttl: w.within(time.Minute)}
			var both sync.WaitGroup
			both.Go(func() {
				time.Sleep(between(r, 0, 3*time.Millisecond))
				p.close()
			})
			c := w.begin(p, "Acquire", allNames[:2])
			k, err := p.locker.AcquireAll(ctx, allNames[:2], redlock.WithTTL(h.ttl))
			w.acquired(h, k, err, c)
			both.Wait()
		})
	}
	all.Wait()
}
