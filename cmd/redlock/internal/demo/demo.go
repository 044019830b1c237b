// Package demo shows a lock at work while its nodes fail, and judges whether it
// was ever held twice.
package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
	"github.com/redquorum/go-redlock/redlock"
)

// Options says what to show, and where.
type Options struct {
	Nodes     []string // addresses of real nodes; none: embedded ones
	Duration  time.Duration
	Lockers   int
	PerLocker int // contenders that share a Locker
	Out       io.Writer
	Paint     term.Painter

	// broken gives each Locker a lock of its own, to see that it is noticed.
	broken bool
}

// Limits on options.
const (
	minDuration   = 2 * time.Second // the faults last longer than a node timeout
	maxDuration   = time.Hour
	maxContenders = 12 // lanes that fit on a screen
)

// Validate says what is wrong with the options, if anything.
func (o *Options) Validate() error {
	switch n := o.Lockers * o.PerLocker; {
	case o.Duration < minDuration || o.Duration > maxDuration:
		return fmt.Errorf("duration of %v: want %v to %v", o.Duration, minDuration, maxDuration)
	case o.Lockers < 1 || o.Lockers > maxContenders || o.PerLocker < 1 || o.PerLocker > maxContenders:
		return fmt.Errorf("%d Lockers with %d contenders each: want 1 or more of both, but not many", o.Lockers, o.PerLocker)
	case n < 2 || n > maxContenders:
		return fmt.Errorf("%d contenders: want 2 to %d", n, maxContenders)
	}
	return nil
}

// Run runs the demo until its time is over or ctx ends, and returns the verdict
// on what was seen until then. An error means that it could not be run.
func Run(ctx context.Context, o Options) (Verdict, error) {
	if err := o.Validate(); err != nil {
		return Verdict{}, err
	}
	c, err := newCluster(ctx, o.Nodes)
	if err != nil {
		return Verdict{}, err
	}
	defer c.close()

	s := &stage{
		Options:  o,
		cluster:  c,
		name:     "redlock-demo-" + rand.Text()[:8],
		labels:   labelsFor(o.Lockers, o.PerLocker),
		attempts: make(chan struct{}),
	}
	return s.run(ctx)
}

// stage is where one demo takes place.
type stage struct {
	Options
	cluster  *cluster
	name     string // of the lock
	labels   []string
	record   *record
	resource resource
	attempts chan struct{}
}

func (s *stage) run(ctx context.Context) (Verdict, error) {
	lockers, err := s.newLockers()
	if err != nil {
		return Verdict{}, err
	}
	draw := renderer{paint: s.Paint, labels: s.labels, nodes: len(s.cluster.nodes), kind: s.cluster.kind}
	s.print(draw.header(s.Options, s.name), draw.columns())
	s.record = newRecord(clock.System(), len(s.labels))

	var wg sync.WaitGroup
	acting, cancel := context.WithTimeout(ctx, s.Duration)
	defer cancel()
	for i, label := range s.labels {
		c := &contender{
			id:       i,
			label:    label,
			locker:   lockers[i/s.PerLocker],
			name:     s.lockName(i / s.PerLocker),
			resource: &s.resource,
			record:   s.record,
			attempts: s.attempts,
		}
		wg.Go(func() { c.run(acting) })
	}
	wg.Go(func() { s.fail(acting, Plan(len(s.cluster.nodes), s.Duration)) })
	ended := s.timeline(acting, draw)
	wg.Wait()

	// All nodes are well again, so nothing may be left after this.
	for _, err := range closeAll(lockers) {
		s.record.failed("close", err)
	}
	left, err := s.leftBehind(context.WithoutCancel(ctx))
	if err != nil {
		s.record.failed("clean up", err)
	}
	if ctx.Err() != nil {
		s.print("", fmt.Sprintf("Interrupted after %s.", show(ended)))
	}
	h := s.record.history(ended)
	verdict := Judge(h.holds, s.resource.witness())
	s.print("", draw.summary(h), "", draw.verdict(verdict, left))
	return verdict, nil
}

func (s *stage) print(lines ...string) {
	for _, line := range lines {
		// Nobody may be reading any more; the verdict stands all the same.
		_, _ = fmt.Fprintln(s.Out, line)
	}
}

func (s *stage) newLockers() ([]*redlock.Locker, error) {
	var lockers []*redlock.Locker
	for i := range s.Lockers {
		options := []redlock.Option{
			redlock.WithTTL(ttl),
			redlock.WithNodeTimeout(nodeTimeout),
			redlock.WithRetryDelay(5*time.Millisecond, 100*time.Millisecond),
			redlock.WithMinValidity(ttl / 2),
			redlock.WithOwner(fmt.Sprintf("demo:%c", 'A'+i)),
		}
		l, err := redlock.New(s.cluster.addrs, append(options, s.cluster.options...)...)
		if err != nil {
			return nil, errors.Join(append([]error{err}, closeAll(lockers)...)...)
		}
		lockers = append(lockers, l)
	}
	return lockers, nil
}

func (s *stage) lockName(locker int) string {
	if s.broken {
		return fmt.Sprintf("%s-%d", s.name, locker)
	}
	return s.name
}

// closeAll closes all Lockers at once: each may have to wait.
func closeAll(lockers []*redlock.Locker) []error {
	var wg sync.WaitGroup
	errs := make([]error, len(lockers))
	for i, l := range lockers {
		wg.Go(func() { errs[i] = l.Close() })
	}
	wg.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// timeline prints a row for each slice of time, until ctx ends. It returns
// when that was.
func (s *stage) timeline(ctx context.Context, draw renderer) (ended time.Duration) {
	from := time.Duration(0)
	for ctx.Err() == nil {
		rest(ctx, from+sliceLength-s.record.now())
		// A row more than once if this goroutine was held up.
		for ; s.record.now() >= from+sliceLength; from += sliceLength {
			s.print(draw.row(s.record.slice(from, from+sliceLength)))
		}
	}
	ended = s.record.now()
	if ended-from > sliceLength/5 {
		s.print(draw.row(s.record.slice(from, ended)))
	}
	return ended
}

// fail carries out the plan, until ctx ends. When it returns, all nodes are
// well.
func (s *stage) fail(ctx context.Context, plan []Outage) {
	type action struct {
		at time.Duration
		do func()
	}
	var actions []action
	mend := make(map[int]func())
	for _, o := range plan {
		actions = append(actions,
			action{o.From, func() {
				s.hurt(ctx, o)
				mend[o.Node] = func() { s.mend(o) }
			}},
			action{o.Until, func() {
				mend[o.Node]()
				delete(mend, o.Node)
			}})
	}
	slices.SortStableFunc(actions, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	for _, a := range actions {
		if rest(ctx, a.at-s.record.now()); ctx.Err() != nil {
			break
		}
		a.do()
	}
	for _, left := range mend {
		left()
	}
}

// hurt begins an outage.
func (s *stage) hurt(ctx context.Context, o Outage) {
	n := s.cluster.nodes[o.Node]
	who := "nobody holds"
	if holder := s.record.holder(); holder >= 0 {
		who = s.labels[holder] + " holds"
	}
	text := ""
	switch o.Fault {
	case Killed:
		s.record.broke(o.Node, o.Fault)
		n.Kill()
		text = fmt.Sprintf("node %d killed; %s", o.Node+1, who)
	case Restarting:
		s.record.broke(o.Node, o.Fault)
		n.Kill()
		text = fmt.Sprintf("node %d restarts; %s", o.Node+1, who)
	case Hung:
		// In the very moment in which somebody tries to acquire.
		timer := time.NewTimer(maxWork + maxIdle)
		defer timer.Stop()
		select {
		case <-s.attempts:
		case <-timer.C:
		case <-ctx.Done():
		}
		acquiring := s.record.acquiring.Load()
		s.record.broke(o.Node, o.Fault)
		n.Hang()
		text = fmt.Sprintf("node %d hangs; %d acquiring", o.Node+1, acquiring)
	default:
		return
	}
	s.record.tell(event{text: text, fault: o.Fault})
}

// mend ends an outage.
func (s *stage) mend(o Outage) {
	n := s.cluster.nodes[o.Node]
	if o.Fault == Hung {
		n.Resume()
		s.record.tell(event{text: fmt.Sprintf("node %d goes on after %s", o.Node+1, show(s.record.mended(o.Node)))})
		return
	}
	if err := n.Revive(); err != nil {
		s.record.failed("revive", fmt.Errorf("node %d: %w", o.Node+1, err))
		return
	}
	s.record.tell(event{text: fmt.Sprintf("node %d is back after %s", o.Node+1, show(s.record.mended(o.Node)))})
}

// leftBehind returns on how many nodes the lock's key was left, and then waits
// until its TTL has taken it away.
func (s *stage) leftBehind(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, ttl+time.Second)
	defer cancel()
	first := -1
	for {
		left, err := s.cluster.left(ctx, s.name)
		if err != nil {
			return first, err
		}
		if first < 0 {
			first = left
		}
		if left == 0 {
			return first, nil
		}
		if rest(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return first, fmt.Errorf("the key is still on %s", count(left, "node"))
		}
	}
}
