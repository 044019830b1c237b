package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/internal/sim"
	"github.com/redquorum/go-redlock/redlock"
)

// A plan is what kind of history it is.
type plan struct {
	nodes int
	// reach says to which nodes things happen.
	reach reach
	// sick are the nodes to which things happen if they happen to a minority.
	sick []int
	// steady says that packets are never late by themselves.
	steady bool
	// forgets says that nodes forget locks when they go down, and that the
	// restart guard is on, unless it is unguarded.
	forgets, unguarded bool
	fencing            bool
	// long says that locks last for so long that nothing goes away by itself.
	long   bool
	pauses bool
	closes bool
	// skew is by how much a clock may be too fast or too slow.
	skew float64
}

type reach uint8

const (
	noNode reach = iota
	aMinority
	anyNode
)

// withinDrift is a skew that keeps any two clocks within the default drift
// factor of each other: 1.0049 / 0.9951 is 1.00985.
const withinDrift = 0.0049

// guardFor is how long the restart guard keeps nodes from granting. No TTL is
// longer where nodes forget.
const guardFor = 150 * time.Millisecond

func drawPlan(r *rand.Rand) plan {
	p := plan{
		nodes:   pick(r, []int{1, 3, 3, 3, 3, 3, 5, 5}),
		reach:   pick(r, []reach{noNode, aMinority, aMinority, anyNode, anyNode, anyNode}),
		steady:  r.IntN(2) == 0,
		forgets: r.IntN(5) == 0,
		fencing: r.IntN(2) == 0,
		long:    r.IntN(2) == 0,
		pauses:  r.IntN(6) == 0,
		closes:  r.IntN(4) == 0,
		skew:    withinDrift,
	}
	if p.forgets {
		p.long = false
	}
	p.sick = r.Perm(p.nodes)[:(p.nodes-1)/2]
	return p
}

// calm says that nothing happens that could make a node fail to answer in time.
func (p *plan) calm() bool { return p.reach == noNode && p.steady && !p.pauses }

// well says that a majority of nodes always answers in time.
func (p *plan) well() bool { return p.reach != anyNode && p.steady && !p.pauses }

// untroubled returns the nodes to which nothing happens.
func (p *plan) untroubled() []int {
	var nodes []int
	for node := range p.nodes {
		if p.reach == noNode || p.reach == aMinority && !slices.Contains(p.sick, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

func (p *plan) ttls() []time.Duration {
	switch {
	case p.long:
		return []time.Duration{10 * time.Second, time.Minute}
	case p.forgets:
		return []time.Duration{60 * time.Millisecond, guardFor}
	}
	return someTTLs
}

// within returns ttl, or less where the restart guard allows no more.
func (p *plan) within(ttl time.Duration) time.Duration {
	if p.forgets && !p.unguarded {
		return min(ttl, guardFor)
	}
	return ttl
}

// rate draws how fast a clock runs; the extremes are as likely as the rest.
func (p *plan) rate(r *rand.Rand) float64 {
	return pick(r, []float64{1 + p.skew, 1 - p.skew, 1 + (2*r.Float64()-1)*p.skew})
}

// A world is a history of every kind of operation.
type world struct {
	record
	plan
	cluster   *sim.Cluster
	processes []*process
	judge
}

// playWorld plays the history of a seed. It must be called inside a bubble.
func playWorld(seed uint64, change func(*plan)) *record {
	random := rand.New(rand.NewPCG(seed, 0))
	w := &world{record: newRecord(seed), plan: drawPlan(random)}
	if change != nil {
		change(&w.plan)
	}
	w.title = fmt.Sprintf("%+v", w.plan)
	w.cluster = sim.NewCluster(w.nodes, seed)
	w.judge = newJudge(w.nodes)
	for i := range w.nodes {
		n := w.cluster.Node(i)
		n.SetRate(w.rate(random))
		n.Scripts, n.Written, n.Moved = w.executed, w.written, w.moved
	}
	if w.steady {
		w.cluster.SetSteady()
	}
	if w.forgets {
		time.Sleep(3 * time.Second) // or the guard would take all nodes for restarted
	}
	for range 3 + random.IntN(3) {
		w.join()
	}

	over := make(chan struct{})
	var living, fate sync.WaitGroup
	for _, p := range w.processes[1:] { // the first is kept for the end
		for worker := range 1 + random.IntN(2) {
			living.Go(func() { p.live(rand.New(rand.NewPCG(seed, uint64(1+2*p.number+worker)))) })
		}
	}
	fate.Go(func() { w.befall(random, over) })
	fate.Go(func() { w.watch(over) })
	living.Wait()
	close(over)
	fate.Wait()
	w.finish(random)
	return &w.record
}

// join adds a process.
func (w *world) join() *process {
	number := len(w.processes)
	r := rand.New(rand.NewPCG(w.seed, uint64(1000+number)))
	p := &process{
		world:  w,
		number: number,
		clock:  &wrongClock{Clock: clock.Monotonic(), rate: w.rate(r)},
	}
	p.clock.set(time.Duration(r.Int64N(int64(10*time.Second))) - 5*time.Second)
	options := []redlock.Option{
		redlock.WithDialer(w.cluster.Dialer(number)),
		redlock.WithClock(p.clock),
		redlock.WithNodeTimeout(nodeTimeout),
		redlock.WithOwner(p.String()),
		redlock.WithRetryDelay(2*time.Millisecond, 20*time.Millisecond),
		redlock.WithOutageTolerance(100 * time.Millisecond),
		redlock.WithFencing(w.fencing),
	}
	if w.forgets && !w.unguarded {
		options = append(options, redlock.WithRestartGuard(guardFor))
	}
	locker, err := redlock.New(w.cluster.Addrs(), options...)
	if err != nil {
		panic(err)
	}
	p.locker = locker
	w.processes = append(w.processes, p)
	return p
}

// moved is told of every packet of a client's.
func (w *world) moved(client int) { w.processes[client].moved() }

// executed is told what the nodes execute.
func (w *world) executed(node, client int, script *scripts.Script, keys, args []string, reply any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logScriptLocked(node, client, script, keys, args, reply)
	answer, refused := reply.([]int64)
	if !refused {
		return
	}
	names := slices.DeleteFunc(slices.Clone(keys), isCounter)
	w.refusals[refusalOf(node, client, names, "")] = time.Now()
	for _, i := range answer[2:] {
		w.refusals[refusalOf(node, client, names, names[i-1])] = time.Now()
	}
}

func isCounter(key string) bool { return strings.HasPrefix(key, "redlock:fence:") }

// befall is what happens to the nodes, until the clients are done.
func (w *world) befall(r *rand.Rand, over <-chan struct{}) {
	var mending sync.WaitGroup
	defer mending.Wait()
	for {
		select {
		case <-over:
			return
		case <-time.After(between(r, 0, 50*time.Millisecond)):
		}
		if w.pauses && r.IntN(3) == 0 {
			p, lasts := pick(r, w.processes[1:]), between(r, time.Millisecond, 150*time.Millisecond)
			mending.Go(func() { w.pause(p, lasts) })
			continue
		}
		var node int
		switch {
		case w.reach == anyNode:
			node = r.IntN(w.nodes)
		case w.reach == aMinority && len(w.sick) > 0:
			node = pick(r, w.sick)
		default:
			continue
		}
		trouble, mend := w.trouble(r, node)
		who := fmt.Sprint("node ", node+1)
		w.log(who, "%s", trouble)
		lasts := between(r, time.Millisecond, 120*time.Millisecond)
		mending.Go(func() {
			time.Sleep(lasts)
			mend()
			w.log(who, "no longer %s", trouble)
		})
	}
}

func (w *world) pause(p *process, d time.Duration) {
	w.log(p.String(), "is stopped")
	w.count("paused")
	w.cluster.Pause(p.number, true)
	time.Sleep(d)
	w.cluster.Pause(p.number, false)
	w.log(p.String(), "goes on")
}

// trouble makes something happen to a node, and returns what ends it.
func (w *world) trouble(r *rand.Rand, node int) (what string, mend func()) {
	n := w.cluster.Node(node)
	switch r.IntN(11) {
	case 0, 1:
		n.Stop()
		return "down", func() { w.start(node) }
	case 2:
		n.Hang()
		return "hung", n.Resume
	case 3:
		n.SetMute(true)
		return "mute", func() { n.SetMute(false) }
	case 4:
		n.SetDeaf(true)
		return "deaf", func() { n.SetDeaf(false) }
	case 5:
		n.SetDelay(between(r, time.Millisecond, 60*time.Millisecond))
		return "slow", func() { n.SetDelay(0) }
	case 6:
		n.SetErrors(sim.Instead)
		return "loading", func() { n.SetErrors(sim.NoErrors) }
	case 7:
		n.SetErrors(sim.Besides)
		return "wrong in its answers", func() { n.SetErrors(sim.NoErrors) }
	case 8:
		client := r.IntN(len(w.processes))
		n.SetApart(client, true)
		return fmt.Sprintf("cut off from client %d", client+1), func() { n.SetApart(client, false) }
	case 9:
		w.noteFlushed(node)
		n.FlushScripts()
		return "without scripts", func() {}
	default:
		n.Cut()
		return "reset", func() {}
	}
}

// start brings a node back, which may have forgotten its locks.
func (w *world) start(node int) {
	if w.forgets {
		w.noteForgotten(node)
	}
	w.cluster.Node(node).Start(w.forgets)
}
