package history

import (
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// open is the return of an operation that nobody knows the outcome of.
const open = Moment(math.MaxInt64)

// A Moment is a time of a history, in nanoseconds from its beginning.
type Moment int64

// A Recorder takes down one history. Its methods, and those of its holds, may be called from any goroutine.
type Recorder struct {
	began time.Time

	mu     sync.Mutex // guards what follows
	claims int
	all    []porcupine.Operation
}

// New begins a history.
func New() *Recorder { return &Recorder{began: time.Now()} }

// Now returns the moment; take it before what is to be recorded is called.
func (r *Recorder) Now() Moment { return Moment(time.Since(r.began)) }

func (r *Recorder) add(client int, o operation, called, returned Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, porcupine.Operation{ClientId: client, Input: o, Call: int64(called), Return: int64(returned)})
}

// Claims returns how many locks have been acquired so far.
func (r *Recorder) Claims() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claims
}

// Verdict is what comes of a history.
type Verdict struct {
	// Result is porcupine.Ok or Illegal; or Unknown if there was not time enough, which is no pass.
	Result porcupine.CheckResult
	info   porcupine.LinearizationInfo
}

// Draw writes the history, and how far it can be explained, to an HTML file.
func (v Verdict) Draw(path string) error { return porcupine.VisualizePath(model, v.info, path) }

// Judge judges what has been recorded. It takes patience at the most.
func (r *Recorder) Judge(patience time.Duration) Verdict {
	r.mu.Lock()
	all := append([]porcupine.Operation(nil), r.all...)
	r.mu.Unlock()
	result, info := porcupine.CheckOperationsVerbose(model, all, patience)
	return Verdict{result, info}
}

// A Hold is a lock that a client has been given.
type Hold struct {
	recorder *Recorder
	client   int
	name     string
	claim    int

	mu     sync.Mutex // guards what follows
	seen   Moment     // when it was last seen to be valid
	until  Moment     // up to when the client may rely on it, as far as it was seen
	closed bool
}

// Acquired records that the client was given the lock, for a call at that moment. That it relies on it for any time is
// recorded by [Hold.Valid].
func (r *Recorder) Acquired(client int, name string, number uint64, called Moment) *Hold {
	returned := r.Now()
	r.mu.Lock()
	r.claims++
	claim := r.claims
	r.mu.Unlock()
	r.add(client, operation{acquire, name, claim, number}, called, returned)
	return &Hold{recorder: r, client: client, name: name, claim: claim, seen: called, until: called}
}

func (h *Hold) record(do verb, called, returned Moment) {
	h.recorder.add(h.client, operation{do: do, name: h.name, claim: h.claim}, called, returned)
}

// Valid records that, asked at that moment, the lock said that it is good for so much longer.
func (h *Hold) Valid(asked Moment, left time.Duration) {
	h.record(observe, asked, h.recorder.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = asked
	h.until = max(h.until, asked+Moment(left)) // it answered later than it was asked
}

// Released records a release, confirmed or not. A lock whose validity was over ended by that.
func (h *Hold) Released(called Moment, confirmed bool) {
	returned := open
	if confirmed {
		returned = h.recorder.Now()
	}
	h.close(min(called, h.until), returned)
}

// Expired records that the client does nothing more about the lock. It may rely on it until the validity is over, and
// the nodes may let it go at any moment after that.
func (h *Hold) Expired() { h.close(h.until, open) }

// Lost records that the client was told that the lock is gone. It was told so at some moment after it was last seen to
// be valid.
func (h *Hold) Lost() { h.close(h.seen, open) }

func (h *Hold) close(called, returned Moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		panic("history: a lock ends once")
	}
	h.closed = true
	h.record(end, called, returned)
}
