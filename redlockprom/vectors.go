package redlockprom

import "github.com/prometheus/client_golang/prometheus"

// Bounds of the buckets, in seconds. Native histograms would need no choice, but
// not every server stores them, and the alerts have to work on all.
var (
	// An operation takes a round trip: 100 µs within a rack, 100 ms between
	// continents, and at most the node timeout (500 ms unless set). Waiting takes
	// from one round trip to as long as others hold the lock; beyond a minute
	// it is a queue, and the length of that is no longer a matter of buckets.
	shortTimes = []float64{
		.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
	}
	// Locks are held for the length of a job, and validity goes up to the TTL: a
	// tenth of a second more or less is of interest at the lower end only.
	longTimes = []float64{.001, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600}
)

// The operations on nodes.
const (
	opAcquire = iota
	opRenew
	opRelease
)

var operations = [...]string{"acquire", "renew", "release"}

// vectors are the metrics of a Collector that it counts itself, and those of
// their children that need no lookup.
type vectors struct {
	acquisitions, renewals, releases, losses *prometheus.CounterVec // by name
	wait, hold, validity                     *prometheus.HistogramVec
	votes, errors, reclaims                  *prometheus.CounterVec // by node
	all                                      []prometheus.Collector

	tried [len(results)]prometheus.Counter
	took  [len(operations)]prometheus.Observer

	reclaiming, fenced *prometheus.Desc
}

func newVectors(own prometheus.Labels) vectors {
	var v vectors
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: own}, labels)
		v.all = append(v.all, vec)
		return vec
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: own, Buckets: buckets}, labels)
		v.all = append(v.all, vec)
		return vec
	}
	v.acquisitions = counter("redlock_acquisitions_total", "Calls that acquire a lock, by what came of them.", "name", "result")
	v.renewals = counter("redlock_renewals_total", "Renewals, by what came of them.", "name", "result")
	v.releases = counter("redlock_releases_total", "Releases, by what came of them.", "name", "result")
	v.losses = counter("redlock_locks_lost_total", "Locks that ended before they were released.", "name", "reason")
	v.wait = histogram("redlock_wait_seconds", "How long calls that acquire a lock took, whatever came of them.", shortTimes, "name")
	v.hold = histogram("redlock_hold_seconds", "How long locks were held, until released or lost.", longTimes, "name")
	v.validity = histogram("redlock_release_validity_seconds", "Validity left when a lock was released; 0 if it had been lost.", longTimes, "name")
	v.votes = counter("redlock_votes_total", "Votes of nodes when the outcome was certain.", "node", "vote")
	v.errors = counter("redlock_node_errors_total", "Votes that failed or are unknown, by cause.", "node", "kind")
	v.reclaims = counter("redlock_reclaims_total", "Votes and releases that have been undone, or are over by themselves.", "node", "result")

	attempts := counter("redlock_attempts_total", "Attempts to acquire a lock, by what came of them.", "result")
	for i, label := range results {
		v.tried[i] = attempts.WithLabelValues(label)
	}
	took := histogram("redlock_operation_seconds", "Time from the first byte until the outcome was certain.", shortTimes, "operation")
	for i, label := range operations {
		v.took[i] = took.WithLabelValues(label)
	}

	v.reclaiming = prometheus.NewDesc("redlock_reclaims_pending", "Votes and releases that are still to be undone or done again.", nil, own)
	v.fenced = prometheus.NewDesc("redlock_fencing_tokens_total", "Fencing tokens, by the round trips that they took.", []string{"round_trips"}, own)
	return v
}
