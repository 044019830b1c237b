package redlockprom

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/go-redlock/redlock"
)

// Collector counts what one [redlock.Locker] does. It is that Locker's
// [redlock.Observer] and a [prometheus.Collector], and safe for concurrent use.
// Observing an event is a few atomic additions. Only the first about a name or a
// node may have to wait until a registry has read the figures, and never until
// somebody has fetched them.
//
// It belongs to one Locker: events do not say whose they are, and two Lockers
// can be of different opinions about one node. When the Locker is closed, take
// the Collector out of its registry; what it shows does not change any more.
type Collector struct {
	vectors
	names  names
	nodes  nodes
	locker atomic.Pointer[redlock.Locker]
}

var (
	_ redlock.Observer     = (*Collector)(nil)
	_ prometheus.Collector = (*Collector)(nil)
)

// Option is what [New] takes.
type Option func(*Collector)

// New returns the Collector of a Locker that is to be called locker in the label
// of that name. Collectors in one registry need different names; with one
// Locker in a program it may be empty.
func New(locker string, opts ...Option) *Collector {
	own := prometheus.Labels{"locker": locker}
	c := &Collector{vectors: newVectors(own)}
	c.nodes.init(own, &c.vectors)
	for _, o := range opts {
		o(c)
	}
	c.names.vectors = &c.vectors
	if c.names.label == nil {
		_ = c.names.get(nil) // so that rates have a 0 to start from
	}
	return c
}

// Track makes the Collector ask l, the Locker that it observes, for what no event
// tells: [redlock.Locker.Stat].
func (c *Collector) Track(l *redlock.Locker) { c.locker.Store(l) }

// Observe counts an event.
func (c *Collector) Observe(e redlock.Event) {
	switch e := e.(type) {
	case redlock.Attempted:
		c.tried[resultOf(e.Err)].Inc()
		c.took[opAcquire].Observe(e.Took.Seconds())
		c.nodes.attempted(e.Votes)
	case redlock.Acquired:
		c.names.get(e.Names).acquired(acquired, e.Waited)
	case redlock.AcquireFailed:
		c.names.get(e.Names).acquired(resultOf(e.Err), e.Waited)
	case redlock.Renewed:
		c.names.get(e.Names).renewals[upkeepOf(e.Err)].Inc()
		c.took[opRenew].Observe(e.Took.Seconds())
		c.nodes.voted(e.Votes)
	case redlock.Lost:
		s := c.names.get(e.Names)
		s.lost(e.Reason).Inc()
		s.hold.Observe(e.Held.Seconds())
	case redlock.Released:
		c.released(e)
	case redlock.Reclaimed:
		c.nodes.get(e.Node).reclaimed(e.Undone)
	case redlock.NodeWell:
		c.nodes.get(e.Node).setUp(true)
	case redlock.NodeSick:
		c.nodes.get(e.Node).setUp(false)
	case redlock.NodeQuarantined:
		c.nodes.get(e.Node).quarantine(c.nodes.now() + e.For)
	}
}

func (c *Collector) released(e redlock.Released) {
	s := c.names.get(e.Names)
	result := upkeepOf(e.Err)
	s.releases[result].Inc()
	s.validity.Observe(e.Validity.Seconds())
	if e.Validity > 0 { // otherwise its loss has been counted, with how long it was held
		s.hold.Observe(e.Held.Seconds())
		if result == upkeepLost {
			s.lost(foundAtRelease).Inc()
		}
	}
	c.took[opRelease].Observe(e.Took.Seconds())
	c.nodes.voted(e.Votes)
}

// Describe sends what there is to be collected.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.all {
		v.Describe(ch)
	}
	ch <- c.reclaiming
	ch <- c.fenced
	c.nodes.describe(ch)
}

// Collect sends the present figures.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.all {
		v.Collect(ch)
	}
	if l := c.locker.Load(); l != nil {
		stat := l.Stat()
		ch <- prometheus.MustNewConstMetric(c.reclaiming, prometheus.GaugeValue, float64(stat.Reclaiming))
		ch <- prometheus.MustNewConstMetric(c.fenced, prometheus.CounterValue, float64(stat.FencedAtOnce), "1")
		ch <- prometheus.MustNewConstMetric(c.fenced, prometheus.CounterValue, float64(stat.FencedByConfirm), "2")
	}
	c.nodes.collect(ch)
}
