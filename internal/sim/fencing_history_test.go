package sim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/internal/sim"
	"github.com/redquorum/go-redlock/redlock"
)

const nodeTimeout = 30 * time.Millisecond

var allNames = []string{"a", "b", "c"}

// A history is a few clients that lock and unlock a few names on a few nodes,
// and what befalls them.
type history struct {
	record
	cluster *sim.Cluster
	clients []*client
	// forgets says that nodes that stop lose their locks and keep their
	// counters only. Then two may hold a lock at once, and all that is left is
	// the order of acquisitions of which one returned before the other began.
	forgets bool

	// Guarded by the record's mutex.
	holds   []*hold           // that nobody has released
	highest map[string]uint64 // by name, of the acquisitions that have returned
}

type client struct {
	*history
	number int
	random *rand.Rand
	clock  *wrongClock
	locker *redlock.Locker
}

// A hold is a lock as its holder sees it.
type hold struct {
	*redlock.Lock
	client int
}

// playFencing plays the history of a seed. It must be called inside a bubble.
func playFencing(seed uint64, lies bool) *record {
	random := rand.New(rand.NewPCG(seed, 0))
	h := &history{
		record:  newRecord(seed),
		cluster: sim.NewCluster(3+2*random.IntN(2), seed),
		forgets: random.IntN(8) == 0,
		highest: make(map[string]uint64),
	}
	for i := range h.cluster.Len() {
		n := h.cluster.Node(i)
		n.SetRate(1 + (random.Float64()-0.5)*0.008)
		n.Scripts = h.noteScript
		if lies {
			n.Lie()
		}
	}
	for i := range 2 + random.IntN(3) {
		c := &client{
			history: h,
			number:  i,
			random:  rand.New(rand.NewPCG(seed, uint64(1+i))),
			clock:   &wrongClock{Clock: clock.Monotonic(), rate: 1 + (random.Float64()-0.5)*0.008},
		}
		c.clock.set(time.Duration(random.Int64N(int64(10*time.Second))) - 5*time.Second)
		locker, err := redlock.New(h.cluster.Addrs(),
			redlock.WithDialer(h.cluster.Dialer(i)),
			redlock.WithClock(c.clock),
			redlock.WithNodeTimeout(nodeTimeout),
			redlock.WithOwner(fmt.Sprint("client", i+1)),
			redlock.WithRetryDelay(2*time.Millisecond, 20*time.Millisecond),
			redlock.WithOutageTolerance(100*time.Millisecond),
			redlock.WithFencing(true))
		if err != nil {
			panic(err)
		}
		c.locker = locker
		h.clients = append(h.clients, c)
	}

	h.title = fmt.Sprintf("%d clients, %d nodes", len(h.clients), h.cluster.Len())
	if h.forgets {
		h.title += " that forget locks when they go down"
	}

	var clients, fate sync.WaitGroup
	for _, c := range h.clients {
		clients.Go(c.live)
	}
	over := make(chan struct{})
	fate.Go(func() { h.befall(random, over) })
	clients.Wait()
	close(over)
	fate.Wait()
	var closing sync.WaitGroup
	for _, c := range h.clients {
		closing.Go(func() { _ = c.locker.Close() }) // nodes may still be out of reach
	}
	closing.Wait()
	return &h.record
}

// A wrongClock runs at a slightly wrong rate, and shows quite a wrong time.
type wrongClock struct {
	clock.Clock
	rate float64

	mu  sync.Mutex
	off time.Duration
}

func (c *wrongClock) Elapsed() time.Duration {
	return time.Duration(float64(c.Clock.Elapsed()) * c.rate)
}

func (c *wrongClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Now().Add(c.off)
}

func (c *wrongClock) set(off time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
}

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// live is what a client does.
func (c *client) live() {
	r := c.random
	count := 3 + r.IntN(5)
	for i := range count {
		time.Sleep(between(r, 0, 12*time.Millisecond))
		if c.number == 0 && i == count/2 {
			c.clock.set(-time.Hour)
			c.log(c.who(), "sets its clock back by an hour")
		}
		if k := c.acquire(); k != nil {
			c.use(k)
		}
	}
}

func (c *client) who() string { return fmt.Sprint("client ", c.number+1) }

var someTTLs = []time.Duration{60 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, time.Second}

// acquire tries to get a lock.
func (c *client) acquire() *hold {
	r := c.random
	names := []string{pick(r, allNames[:2])}
	if r.IntN(3) == 0 {
		names = nil
		for _, i := range r.Perm(len(allNames))[:1+r.IntN(len(allNames))] {
			names = append(names, allNames[i])
		}
	}
	ttl := redlock.WithTTL(pick(r, someTTLs))
	patience := between(r, 20*time.Millisecond, 300*time.Millisecond)
	how, attempt := "TryAcquireAll", c.locker.TryAcquireAll
	switch roll := r.IntN(10); {
	case roll < 3:
		how, attempt = "AcquireAll", c.locker.AcquireAll
	case roll < 5: // who gives up early leaves a mess
		patience = between(r, 0, 3*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	before := c.begin(how, names)
	k, err := attempt(ctx, names, ttl)
	return c.returned(&hold{k, c.number}, err, nil, before)
}

// use does something with a lock, and gives it up in one way or another.
func (c *client) use(k *hold) {
	r := c.random
	holder := c
	for range r.IntN(4) {
		time.Sleep(between(r, 0, 25*time.Millisecond))
		ctx, cancel := context.WithTimeout(context.Background(), between(r, 0, 60*time.Millisecond))
		if r.IntN(2) == 0 {
			err := k.Renew(ctx)
			holder.log(holder.who(), "Renew %v: %v", k.Names(), outcome{err})
			if err == nil {
				holder.count("renewed")
			}
		} else {
			other := pick(r, c.clients)
			before := other.begin("Resume", k.Names())
			again, err := other.locker.Resume(ctx, k.Names(), k.Token(), redlock.WithTTL(pick(r, someTTLs)))
			if resumed := other.returned(&hold{again, other.number}, err, k, before); resumed != nil {
				k, holder = resumed, other
			}
		}
		cancel()
	}
	time.Sleep(between(r, 0, 15*time.Millisecond))
	patience := between(r, 5*time.Millisecond, 100*time.Millisecond)
	switch r.IntN(8) {
	case 0, 1: // forgotten
		holder.log(holder.who(), "forgets %v", k.Names())
		return
	case 2:
		patience = 0
	case 3: // held for longer than it lasts
		time.Sleep(k.Validity() + between(r, 0, 5*time.Millisecond))
		if errors.Is(k.Err(), redlock.ErrLost) {
			holder.count("lost")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.drop(k)
	holder.log(holder.who(), "Release %v", k.Names())
	err := k.Release(ctx)
	holder.log(holder.who(), "Release %v: %v", k.Names(), outcome{err})
}

// begin notes that an acquisition begins, and returns the largest token that
// was handed out before for any of the names.
func (c *client) begin(how string, names []string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logLocked(c.who(), "%s %v", how, names)
	return c.highestLocked(names)
}

func (h *history) highestLocked(names []string) uint64 {
	highest := uint64(0)
	for _, name := range names {
		highest = max(highest, h.highest[name])
	}
	return highest
}

// returned takes the outcome of an acquisition, and judges it.
//
// Whoever began after another had returned has the larger token, come what
// may. As long as nodes forget no locks there is more: of two acquisitions that
// overlap, the lock of the one that returned first was over before the other
// took it, so tokens grow in the order in which acquisitions return; and nobody
// else has a lock that is valid now.
func (c *client) returned(k *hold, err error, replaces *hold, before uint64) *hold {
	h := c.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.logLocked(c.who(), "%v", outcome{err})
		if errors.Is(err, redlock.ErrTaken) {
			h.counts["refused"]++
		} else {
			h.counts["failed"]++
		}
		return nil
	}
	number, names := k.FencingToken(), k.Names()
	h.logLocked(c.who(), "HOLDS %v as %s: %d, valid for %v", names, short(k.Token()), number, k.Validity())
	h.counts["acquired"]++
	if len(names) > 1 {
		h.counts["acquired several names"]++
	}
	if replaces != nil {
		h.counts["resumed"]++
		h.dropLocked(replaces)
	}
	if number <= before {
		h.violatedLocked("token %d, though %d had been returned before this began", number, before)
	}
	if last := h.highestLocked(names); !h.forgets && number <= last {
		h.violatedLocked("token %d, though %d was returned before this was", number, last)
	}
	for _, name := range names {
		h.highest[name] = max(h.highest[name], number)
	}
	for _, other := range h.holds {
		if !h.forgets && other.Token() != k.Token() && other.Validity() > 0 && k.Validity() > 0 &&
			slices.ContainsFunc(names, func(name string) bool { return slices.Contains(other.Names(), name) }) {
			h.violatedLocked("client %d holds %v, too, for %v", other.client+1, other.Names(), other.Validity())
		}
	}
	h.holds = append(h.holds, k)
	return k
}

func (h *history) drop(k *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropLocked(k)
}

func (h *history) dropLocked(k *hold) {
	h.holds = slices.DeleteFunc(h.holds, func(other *hold) bool { return other == k })
}

// befall is what happens to the nodes, until the clients are done.
func (h *history) befall(r *rand.Rand, over <-chan struct{}) {
	var mending sync.WaitGroup
	defer mending.Wait()
	calm := r.IntN(5) == 0
	for {
		select {
		case <-over:
			return
		case <-time.After(between(r, 0, 50*time.Millisecond)):
		}
		if calm {
			continue
		}
		i := r.IntN(h.cluster.Len())
		n := h.cluster.Node(i)
		trouble, mend := "", func() {}
		switch r.IntN(6) {
		case 0, 1:
			trouble, mend = "down", func() { n.Start(h.forgets) }
			n.Stop()
		case 2:
			trouble, mend = "hung", n.Resume
			n.Hang()
		case 3:
			trouble, mend = "mute", func() { n.SetMute(false) }
			n.SetMute(true)
		case 4:
			trouble, mend = "deaf", func() { n.SetDeaf(false) }
			n.SetDeaf(true)
		case 5:
			trouble = "cut off"
			n.Cut()
		}
		who := fmt.Sprint("node ", i+1)
		h.log(who, "%s", trouble)
		lasts := between(r, time.Millisecond, 120*time.Millisecond)
		mending.Go(func() {
			time.Sleep(lasts)
			mend()
			h.log(who, "no longer %s", trouble)
		})
	}
}

// noteScript is told what the nodes execute.
func (h *history) noteScript(node, client int, script *scripts.Script, keys, args []string, reply any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if script.Name() == "confirm" && reply == int64(1) {
		h.counts["votes for confirmed numbers"]++
	}
	h.logScriptLocked(node, client, script, keys, args, reply)
}
