package matrix

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/integration/proxy"
	"github.com/redquorum/go-redlock/pool"
	"github.com/redquorum/go-redlock/redlock"
)

// A Matrix has the clusters on which cells are tried. They live until the test ends.
type Matrix struct {
	bad      map[string]string // addresses of bad servers, by what they answer
	clusters map[int]*cluster  // by the number of affected nodes
}

type cluster struct {
	*nodes.Cluster
	fleet proxy.Fleet
}

// New starts a cluster for each of the numbers of affected nodes.
func New(tb testing.TB, hits []int) *Matrix {
	tb.Helper()
	m := &Matrix{bad: map[string]string{}, clusters: map[int]*cluster{}}
	for name, reply := range proxy.BadReplies() {
		m.bad[name] = proxy.AnswerWith(tb, reply)
	}
	for _, hit := range hits {
		c := nodes.Start(tb, Size, Settings()...)
		m.clusters[hit] = &cluster{c, proxy.Front(tb, c.Addrs())}
	}
	return m
}

// Result is what was seen of one cell.
type Result struct {
	Want     Expectation
	Got      Outcome
	Err      error // of the operation
	Took     time.Duration
	NotHad   string   // why the cell was not tried; empty if it was
	Problems []string // what makes it red
}

// Green reports whether the cell was tried and nothing is wrong with it.
func (r *Result) Green() bool { return r.NotHad == "" && len(r.Problems) == 0 }

// Red reports whether something is wrong with the cell.
func (r *Result) Red() bool { return len(r.Problems) > 0 }

// A unit is what happens on one cluster in one round.
type unit struct {
	fault   *Fault
	cluster *cluster
	tries   []*try
	victims []*victim
	sick    []string // host and port of the victims, as the library knows them

	lockers []*redlock.Locker
	before  []int // connections of the library to each node
}

// Round tries the cells of one fault, all together. They may be any of its cells.
func (m *Matrix) Round(tb testing.TB, f *Fault, wants []Expectation) []*Result {
	tb.Helper()
	results := make([]*Result, len(wants))
	units := map[int]*unit{}
	byTry := map[*try]*Result{}
	for i, want := range wants {
		results[i] = &Result{Want: want}
		c := m.clusters[want.Hit]
		if why := f.Unavailable(c.Kind(), c.Supports); why != "" {
			results[i].NotHad = why
			continue
		}
		u := units[want.Hit]
		if u == nil {
			u = &unit{fault: f, cluster: c}
			units[want.Hit] = u
		}
		t := &try{want: want, name: "cell-" + want.Operation, unit: u}
		u.tries = append(u.tries, t)
		byTry[t] = results[i]
	}
	play(tb, slices.Collect(maps.Values(units)), m.bad)
	for t, r := range byTry {
		r.Got, r.Err, r.Took, r.Problems = t.got, t.err, t.took, t.problems
	}
	return results
}

// play goes through the steps of a round, each of them on all clusters before the next one.
func play(tb testing.TB, units []*unit, bad map[string]string) {
	tb.Helper()
	cells := 0
	for _, u := range units {
		cells += len(u.tries)
	}
	if cells == 0 {
		return
	}
	// Not the test's: what is open must be closed even when the test is over.
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience) //nolint:usetesting // see above
	defer cancel()
	goroutines := 0
	var times strings.Builder
	defer func() { tb.Logf("%d cells:%s", cells, &times) }()
	step := func(what string, do func(*unit) error) bool {
		began := time.Now()
		ok := each(units, what, do)
		fmt.Fprintf(&times, " %s %v", what, time.Since(began).Round(time.Millisecond))
		return ok
	}
	ready := step("prepare", func(u *unit) error { return u.prepare(ctx, bad) })
	if ready {
		goroutines = ours()
		if step("inflict", (*unit).inflict) {
			step("operations", func(u *unit) error { u.under(ctx); return nil })
		}
		step("heal", (*unit).heal)
		step("afterwards", func(u *unit) error { return u.after(ctx) })
		step("settle", (*unit).settle)
		settleGoroutines(units, "than before the fault", goroutines)
	}
	step("close", (*unit).close)
	settleGoroutines(units, "after Close", 0)
	step("leave", (*unit).leave)
}

// each does a step on all units at once. An error makes all cells of the unit red. It returns whether there was none.
func each(units []*unit, what string, do func(*unit) error) bool {
	errs := make([]error, len(units))
	var wg sync.WaitGroup
	for i, u := range units {
		wg.Go(func() { errs[i] = do(u) })
	}
	wg.Wait()
	for i, u := range units {
		if errs[i] == nil {
			continue
		}
		for _, t := range u.tries {
			t.problem("%s: %v", what, errs[i])
		}
	}
	return errors.Join(errs...) == nil
}

// settleGoroutines waits until there are no more than so many goroutines of the library's.
func settleGoroutines(units []*unit, when string, most int) {
	err := await("return to as many goroutines", func() (bool, error) { return ours() <= most, nil })
	if err == nil {
		return
	}
	for _, u := range units {
		for _, t := range u.tries {
			t.problem("in this round, more goroutines %s: %d, not %d\n%s", when, ours(), most, stacks())
		}
	}
}

// packages begin the names of the functions that belong to the library.
var packages = []string{
	"github.com/redquorum/go-redlock/redlock.",
	"github.com/redquorum/go-redlock/pool.",
	"github.com/redquorum/go-redlock/internal/",
	"github.com/redquorum/go-redlock/clock.",
}

// ours counts the goroutines that are in the library's code.
func ours() int { return len(library()) }

func stacks() string { return strings.Join(library(), "\n\n") }

func library() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var found []string
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if slices.ContainsFunc(packages, func(p string) bool { return strings.Contains(stack, "\n"+p) }) {
			found = append(found, stack)
		}
	}
	return found
}

// url is how the library reaches a node.
func (u *unit) url(node int) string {
	to := url.URL{Scheme: "redis", Host: u.cluster.Node(node).Addr(), User: url.UserPassword(user, password)}
	if u.fault.proxied {
		to.Host = u.cluster.fleet[node].Addr()
	}
	if u.fault.anonymous {
		to.User = nil
	}
	return to.String()
}

func (u *unit) newLocker() (*redlock.Locker, error) {
	var urls []string
	for node := range Size {
		urls = append(urls, u.url(node))
	}
	timeout, tolerance := nodeTimeout, outage
	if u.fault.timeout > 0 {
		timeout = u.fault.timeout
	}
	if u.fault.reconnects {
		tolerance = patience // who waits, waits while the fault is inflicted, too
	}
	l, err := redlock.New(urls, redlock.WithNodeTimeout(timeout), redlock.WithOutageTolerance(tolerance))
	if err == nil {
		u.lockers = append(u.lockers, l)
	}
	return l, err
}

// prepare makes Lockers that have been in use, and sets up the operations.
func (u *unit) prepare(ctx context.Context, bad map[string]string) error {
	if u.fault.anonymous {
		for _, n := range u.cluster.Nodes() {
			if _, err := n.Do("ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all"); err != nil {
				return err
			}
		}
	}
	rival, err := u.newLocker()
	if err != nil {
		return err
	}
	var locks []string
	for _, t := range u.tries {
		t.rival = rival
		locks = append(locks, t.name)
		if t.locker, err = u.newLocker(); err != nil {
			return err
		}
	}
	for i, l := range u.lockers {
		if err := use(ctx, l, fmt.Sprintf("before-%d", i)); err != nil {
			return err
		}
	}
	if err := u.awaitConnected(u.cluster.Nodes()); err != nil {
		return err
	}
	for _, t := range u.tries {
		if err := operations[t.want.Operation].before(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.want.Operation, err)
		}
	}
	if u.before, err = u.connections(); err != nil {
		return err
	}

	hit := u.tries[0].want.Hit
	first := firstVictim(u.fault.Name)
	for i := range hit {
		node := (first + i) % Size
		u.victims = append(u.victims, &victim{
			node:  u.cluster.Node(node),
			proxy: u.cluster.fleet[node],
			locks: locks,
			bad:   bad,
			saved: map[string]string{},
		})
		where, err := url.Parse(u.url(node))
		if err != nil {
			return err
		}
		u.sick = append(u.sick, where.Host)
	}
	return nil
}

// isSick reports whether the node has the fault.
func (u *unit) isSick(addr string) bool {
	return slices.ContainsFunc(u.sick, func(host string) bool { return strings.HasSuffix(addr, host) })
}

// firstVictim differs from fault to fault, since no node may be special, and not from run to run.
func firstVictim(fault string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(fault))
	return int(h.Sum32() % Size)
}

// use makes an acquisition, so that there are connections.
func use(ctx context.Context, l *redlock.Locker, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lock, err := l.Acquire(ctx, name, redlock.WithTTL(ttl), redlock.WithOutageTolerance(patience))
	if err != nil {
		return err
	}
	return lock.Release(ctx)
}

// inflict returns when all victims have the fault.
func (u *unit) inflict() error {
	err := u.eachVictim(u.fault.inflict)
	if err == nil && u.fault.reconnects {
		var sick []*nodes.Node
		for _, v := range u.victims {
			sick = append(sick, v.node)
		}
		err = u.awaitConnected(sick)
	}
	return err
}

func (u *unit) eachVictim(do func(*victim) error) error {
	errs := make([]error, len(u.victims))
	var wg sync.WaitGroup
	for i, v := range u.victims {
		wg.Go(func() {
			if err := do(v); err != nil {
				errs[i] = fmt.Errorf("%s: %w", v.node, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (u *unit) under(ctx context.Context) {
	var wg sync.WaitGroup
	for _, t := range u.tries {
		wg.Go(func() {
			operations[t.want.Operation].under(ctx, t)
			t.judgeKnown(ctx)
		})
	}
	wg.Wait()
}

// heal returns when all nodes are well.
func (u *unit) heal() error {
	var err error
	if u.fault.heal != nil {
		err = u.eachVictim(u.fault.heal)
	}
	for _, v := range u.victims {
		v.node.WaitReady()
	}
	return err
}

// after sees that the library finds all nodes again and works, and gives up what is held.
func (u *unit) after(ctx context.Context) error {
	if err := u.awaitConnected(u.cluster.Nodes()); err != nil {
		return err
	}
	for i, l := range u.lockers {
		// A connection that is there may be one on which the library has not yet introduced itself.
		err := await("acquisition, now that the nodes are well", func() (bool, error) {
			err := use(ctx, l, fmt.Sprintf("after-%d", i))
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var wg sync.WaitGroup
	for _, t := range u.tries {
		wg.Go(func() { operations[t.want.Operation].after(ctx, t) })
	}
	wg.Wait()
	return nil
}

// awaitConnected waits until each Locker has its connection to the nodes, and knows it: the server counts one before
// the Locker has heard its answers, and would still fail for want of it.
func (u *unit) awaitConnected(ns []*nodes.Node) error {
	return await("connections of all Lockers", func() (bool, error) {
		for _, n := range ns {
			commands, _, err := clients(n)
			if err != nil || commands != len(u.lockers) {
				return false, errors.Join(err, fmt.Errorf("%s has %d of %d", n, commands, len(u.lockers)))
			}
		}
		for _, l := range u.lockers {
			for _, n := range l.Nodes() {
				if n.State != pool.Up {
					return false, fmt.Errorf("%s is %v to a Locker", n.Addr, n.State)
				}
			}
		}
		return true, nil
	})
}

// clients counts the connections to a node that are not the harness's.
func clients(n *nodes.Node) (commands, subscriptions int, err error) {
	list, err := redis.String(n.Do("CLIENT", "LIST"))
	for line := range strings.Lines(list) {
		switch {
		case strings.Contains(line, " user="+harness+" "):
		case strings.Contains(line, " sub=0 "):
			commands++
		default:
			subscriptions++
		}
	}
	return commands, subscriptions, err
}

// connections counts the library's connections to each node.
func (u *unit) connections() ([]int, error) {
	var counts []int
	for _, n := range u.cluster.Nodes() {
		commands, subscriptions, err := clients(n)
		if err != nil {
			return nil, err
		}
		counts = append(counts, commands+subscriptions)
	}
	return counts, nil
}

// settle waits until no key is left, and no connection more than before.
func (u *unit) settle() error {
	return errors.Join(u.settleKeys(), u.settleConnections("before the fault", u.before))
}

func (u *unit) settleKeys() error {
	left := map[string][]string{} // nodes, by key
	err := await("node without keys", func() (bool, error) {
		clear(left)
		for _, n := range u.cluster.Nodes() {
			keys, err := redis.Strings(n.Do("KEYS", "*"))
			if err != nil {
				return false, err
			}
			for _, key := range keys {
				left[key] = append(left[key], n.String())
			}
		}
		return len(left) == 0, nil
	})
	for _, t := range u.tries {
		if ns := left[t.name]; len(ns) > 0 {
			t.problem("nobody holds the lock, and its key is left on %s", strings.Join(ns, ", "))
			delete(left, t.name)
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("keys are left: %v (%w)", left, err)
	}
	return nil
}

func (u *unit) settleConnections(when string, most []int) error {
	var now []int
	err := await("return to as many connections", func() (ok bool, err error) {
		if now, err = u.connections(); err != nil {
			return false, err
		}
		for node := range now {
			if now[node] > most[node] {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("more connections than %s: %v, not %v (%w)", when, now, most, err)
	}
	return nil
}

// close ends the Lockers.
func (u *unit) close() error {
	errs := make([]error, len(u.lockers))
	var wg sync.WaitGroup
	for i, l := range u.lockers {
		wg.Go(func() { errs[i] = l.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// leave looks at what the closed Lockers have left, and makes room for the next round.
func (u *unit) leave() error {
	err := errors.Join(u.settleKeys(), u.settleConnections("after Close", make([]int, Size)))
	for _, n := range u.cluster.Nodes() {
		if _, failed := n.Do("FLUSHALL"); failed != nil {
			err = errors.Join(err, failed)
		}
		if !u.fault.anonymous {
			continue
		}
		if _, failed := n.Do("ACL", "SETUSER", "default", "off", "resetpass"); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return err
}
