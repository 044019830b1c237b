package demo

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/go-redlock/clock"
)

// record is what happened, on one clock. It starts at zero.
type record struct {
	clock     clock.Clock
	zero      time.Duration
	acquiring atomic.Int64 // contenders in a call of Acquire

	mu       sync.Mutex // guards what follows
	holds    []Hold
	open     map[int]time.Duration // contenders that hold the lock, since when
	waits    [][]time.Duration     // of each contender's acquisitions
	outages  []Outage              // Until of those that last is ongoing
	events   []event
	failures map[failure]int
}

// ongoing is the end of what has not ended.
const ongoing = time.Duration(1<<63 - 1)

// event is something to tell.
type event struct {
	at    time.Duration
	text  string
	fault Fault // None for good news
	alarm bool  // what must not happen
}

// failure is a kind of error.
type failure struct{ op, kind string }

func newRecord(source clock.Clock, contenders int) *record {
	return &record{
		clock:    source,
		zero:     source.Elapsed(),
		open:     make(map[int]time.Duration),
		waits:    make([][]time.Duration, contenders),
		failures: make(map[failure]int),
	}
}

// now returns the time since the beginning.
func (r *record) now() time.Duration { return r.clock.Elapsed() - r.zero }

func (r *record) begin(contender int, from, waited time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[contender] = from
	r.waits[contender] = append(r.waits[contender], waited)
}

func (r *record) end(h Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, h.Contender)
	r.holds = append(r.holds, h)
}

func (r *record) failed(op string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range kinds(op, err) {
		r.failures[f]++
	}
}

func (r *record) tell(e event) {
	e.at = r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// broke records that a fault has begun.
func (r *record) broke(node int, fault Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outages = append(r.outages, Outage{Node: node, Fault: fault, From: r.now(), Until: ongoing})
}

// mended records that a node's fault has ended, and returns how long it took.
func (r *record) mended(node int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.outages {
		if o := &r.outages[i]; o.Node == node && o.Until == ongoing {
			o.Until = r.now()
			return o.Until - o.From
		}
	}
	return 0
}

// holder returns who holds the lock, or -1.
func (r *record) holder() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for contender := range r.open {
		return contender
	}
	return -1
}

// slice returns what concerns the time between from and until, which has
// passed. Holds that have not ended count up to until.
func (r *record) slice(from, until time.Duration) slice {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := slice{from: from, until: until}
	for _, h := range r.holds {
		if h.Until > from && h.From < until {
			s.holds = append(s.holds, h)
		}
	}
	for contender, began := range r.open {
		if began < until {
			s.holds = append(s.holds, Hold{Contender: contender, From: began, Until: until})
		}
	}
	for _, o := range r.outages {
		if o.Until > from && o.From < until {
			s.outages = append(s.outages, o)
		}
	}
	for _, e := range r.events {
		if e.at >= from && e.at < until {
			s.events = append(s.events, e)
		}
	}
	return s
}

// slice is a short time, one row of the timeline.
type slice struct {
	from, until time.Duration
	holds       []Hold
	outages     []Outage
	events      []event
}

// history is the record when nothing is added any more.
type history struct {
	ended    time.Duration // the contenders were told to stop
	holds    []Hold
	waits    [][]time.Duration
	outages  []Outage
	failures map[failure]int
}

func (r *record) history(ended time.Duration) history {
	r.mu.Lock()
	defer r.mu.Unlock()
	return history{
		ended:    ended,
		holds:    sorted(r.holds),
		waits:    slices.Clone(r.waits),
		outages:  slices.Clone(r.outages),
		failures: maps.Clone(r.failures),
	}
}
