package redlockprom

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/go-redlock/redlock"
)

// WithNames gives the metrics about locks a label name, whose value label
// returns for the name of a lock: its kind, say, without the customer's number. A
// lock on several names gets their common label, or "several". Default: an empty
// label, which for Prometheus is none.
//
// Each value costs about 80 time series, so there must be few. After a hundred,
// new ones become "other". label is called for each event, concurrently: it must
// return at once.
func WithNames(label func(name string) string) Option {
	return func(c *Collector) { c.names.label = label }
}

const (
	maxLabels = 100
	several   = "several"
	other     = "other"
)

// foundAtRelease is why a lock was lost that seemed to be held until its
// release found the keys gone. The library has no such reason.
const foundAtRelease redlock.LossReason = "found at release"

var reasons = []redlock.LossReason{
	redlock.LossExpired, redlock.LossMaxHold, redlock.LossDeleted, redlock.LossStolen, foundAtRelease,
}

// names are the values of the label name, with their time series.
type names struct {
	vectors *vectors
	label   func(string) string // nil: no label

	mu   sync.RWMutex // guards seen
	seen map[string]*series
}

// series are the metrics about the locks of one label.
type series struct {
	acquisitions         [len(results)]prometheus.Counter
	renewals             [len(renewalResults)]prometheus.Counter
	releases             [len(releaseResults)]prometheus.Counter
	wait, hold, validity prometheus.Observer
	losses               *prometheus.CounterVec
}

func (s *series) acquired(r result, waited time.Duration) {
	s.acquisitions[r].Inc()
	s.wait.Observe(waited.Seconds())
}

// lost happens too seldom to keep the children.
func (s *series) lost(reason redlock.LossReason) prometheus.Counter {
	return s.losses.WithLabelValues(reasonLabel(reason))
}

func reasonLabel(reason redlock.LossReason) string {
	if reason == redlock.LossMaxHold {
		return "max_hold"
	}
	return strings.ReplaceAll(string(reason), " ", "_")
}

// get returns the time series for the names of a lock.
func (n *names) get(locked []string) *series {
	label := n.of(locked)
	n.mu.RLock()
	s := n.seen[label]
	n.mu.RUnlock()
	if s != nil {
		return s
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil {
		n.seen = make(map[string]*series)
	}
	if len(n.seen) >= maxLabels {
		label = other
	}
	if s = n.seen[label]; s == nil {
		s = n.vectors.series(label)
		n.seen[label] = s
	}
	return s
}

func (n *names) of(locked []string) string {
	if n.label == nil || len(locked) == 0 {
		return ""
	}
	common := n.label(locked[0])
	for _, name := range locked[1:] {
		if n.label(name) != common {
			return several
		}
	}
	return common
}

// series makes the time series of a label, all of them with 0: where nothing
// was, a rate does not see the first that is counted.
func (v *vectors) series(label string) *series {
	s := &series{
		wait:     v.wait.WithLabelValues(label),
		hold:     v.hold.WithLabelValues(label),
		validity: v.validity.WithLabelValues(label),
		losses:   v.losses.MustCurryWith(prometheus.Labels{"name": label}),
	}
	for i, r := range results {
		s.acquisitions[i] = v.acquisitions.WithLabelValues(label, r)
	}
	for i, r := range renewalResults {
		s.renewals[i] = v.renewals.WithLabelValues(label, r)
	}
	for i, r := range releaseResults {
		s.releases[i] = v.releases.WithLabelValues(label, r)
	}
	for _, reason := range reasons {
		s.lost(reason)
	}
	return s
}
