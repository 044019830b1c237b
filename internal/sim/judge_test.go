package sim_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/go-redlock/internal/quorum"
	"github.com/redquorum/go-redlock/internal/scripts"
	"github.com/redquorum/go-redlock/internal/sim"
	"github.com/redquorum/go-redlock/redlock"
)

// A judge knows the true time, and what is on the nodes. It is guarded by the
// record's mutex, which is never held while a node is asked: nodes call with
// their mutexes held.
type judge struct {
	holders  []*holder // all of them
	valid    []*holder // those that had validity left when last looked at
	highest  map[string]uint64
	refusals map[refusal]time.Time // the last one
	silenced map[onNode]bool       // a release has been written
	flushed  map[int]bool          // nodes that have lost their scripts
	shared   map[string]bool       // tokens of locks that were handed on
	forgot   []map[string]memory   // by node and key: what it held last when it forgot
}

// A refusal is what a node has told a client: that it does not grant these
// names, or, of one of them, that it is the one that others hold.
type refusal struct {
	node, client int
	names, held  string
}

func refusalOf(node, client int, names []string, held string) refusal {
	return refusal{node, client, strings.Join(names, " "), held}
}

// onNode is what a client may have of a token on a node.
type onNode struct {
	node, client int
	token        string
}

// A memory is a lock that a node held.
type memory struct {
	token string
	ends  time.Time
}

// A holder is a lock as its holder sees it.
type holder struct {
	*redlock.Lock
	process *process
	ttl     time.Duration
	renewed bool            // in the background
	bounded bool            // it has a maximum hold
	firm    bool            // its keys are on a quorum of nodes to which nothing happens
	context context.Context // that ends with the lock, if somebody has asked for one

	// Guarded by the record's mutex.
	done     <-chan struct{} // if it is watched
	ended    time.Time       // when its validity was seen to be over
	released bool
}

func newJudge(nodes int) judge {
	return judge{
		highest:  make(map[string]uint64),
		refusals: make(map[refusal]time.Time),
		silenced: make(map[onNode]bool),
		flushed:  make(map[int]bool),
		shared:   make(map[string]bool),
		forgot:   slices.Repeat([]map[string]memory{{}}, nodes),
	}
}

func (h *holder) watch() {
	done := h.Done()
	h.process.mu.Lock()
	defer h.process.mu.Unlock()
	h.done = done
}

// until returns when the validity ends in true time, as it is now.
func (h *holder) until() time.Time { return time.Now().Add(h.trueTime(h.Validity())) }

// trueTime is how long the holder's clock takes to count d. It is a few
// nanoseconds on the lenient side, for floating point.
func (h *holder) trueTime(d time.Duration) time.Duration {
	return time.Duration(float64(d)/h.process.clock.rate) - 10
}

// A call is an acquisition that has begun.
type call struct {
	how     string
	at      time.Time
	names   []string
	highest uint64 // the largest fencing token that was handed out before
	resumes bool   // it takes over a lock that is held
	twin    bool   // and so does another at the same time
}

func (w *world) begin(p *process, how string, names []string) call {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logLocked(p.String(), "%s %v", how, names)
	return call{how: how, at: time.Now(), names: names, highest: w.highestLocked(names)}
}

func (w *world) highestLocked(names []string) uint64 {
	highest := uint64(0)
	for _, name := range names {
		highest = max(highest, w.highest[name])
	}
	return highest
}

// acquired takes the outcome of an acquisition, and judges it.
func (w *world) acquired(h *holder, k *redlock.Lock, err error, c call) *holder {
	p := h.process
	if err != nil {
		w.log(p.String(), "%s %v: %v", c.how, c.names, outcome{err})
		w.failed(p, err, c)
		return nil
	}
	h.Lock = k
	h.firm = w.well() && w.support(h, h.trueTime(k.Validity()), w.untroubled()...) >= quorum.Size(w.nodes)
	number, names := k.FencingToken(), k.Names()
	w.mu.Lock()
	w.logLocked(p.String(), "HOLDS %v as %s: %d, valid for %v", names, short(k.Token()), number, k.Validity())
	w.counts["acquired"]++
	if len(names) > 1 {
		w.counts["acquired several names"]++
	}
	if c.resumes {
		w.replaceLocked(h)
	}
	if w.fencing {
		w.counts["fencing tokens"]++
		if number <= c.highest {
			w.violatedLocked("%s holds %v with token %d, though %d had been returned before it began", p, names, number, c.highest)
		}
		if last := w.highestLocked(names); number <= last && !c.twin {
			w.violatedLocked("%s holds %v with token %d, though %d was returned before this was", p, names, number, last)
		}
		for _, name := range names {
			w.highest[name] = max(w.highest[name], number)
		}
	}
	w.holders = append(w.holders, h)
	w.valid = append(w.valid, h)
	w.mu.Unlock()
	w.look()
	return h
}

// replaceLocked ends what others have of a lock that was handed on: they must
// not use it any more.
func (w *world) replaceLocked(h *holder) {
	w.counts["resumed"]++
	w.shared[h.Token()] = true
	replaced := func(other *holder) bool { return other.Token() == h.Token() }
	for _, other := range w.holders {
		if !replaced(other) {
			continue
		}
		other.released = true
		if w.fencing && other.FencingToken() == h.FencingToken() {
			w.violatedLocked("%s resumed %v from %s, and has the same token %d", h.process, h.Names(), other.process, h.FencingToken())
		}
	}
	w.valid = slices.DeleteFunc(w.valid, replaced)
	w.holders = slices.DeleteFunc(w.holders, replaced)
}

// holderOf returns who holds a lock, or held it last.
func (w *world) holderOf(token string) *holder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holders[slices.IndexFunc(w.holders, func(h *holder) bool { return h.Token() == token })]
}

// failed judges why an acquisition failed.
func (w *world) failed(p *process, err error, c call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var failed *redlock.QuorumError
	if !errors.As(err, &failed) {
		if !errors.Is(err, redlock.ErrClosed) && !errors.Is(err, redlock.ErrLost) {
			w.violatedLocked("%s: %s %v: %v", p, c.how, c.names, err)
		}
		return
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		w.counts["cancelled"]++
	}
	if errors.Is(err, redlock.ErrClosed) && !p.closed.Load() {
		w.violatedLocked("%s: %s %v: %v", p, c.how, c.names, err)
	}
	if c.resumes {
		if errors.Is(err, redlock.ErrTaken) {
			w.violatedLocked("%s: %s %v: %v", p, c.how, c.names, err)
		}
		return // the rest is for undecided and lostTruly
	}
	w.countedLocked(p, failed)
	if failed.Op != "acquire" {
		return
	}
	if errors.Is(err, redlock.ErrTaken) {
		w.counts["ErrTaken"]++
		if refused := w.refusedLocked(p, failed, "", c.at); failed.Refused == 0 || refused < failed.Refused {
			w.violatedLocked("%s: taken, though %d nodes had refused: %v", p, refused, err)
		}
		for _, name := range failed.Held {
			if w.refusedLocked(p, failed, name, c.at) == 0 {
				w.violatedLocked("%s: %q is held, though no node has said so: %v", p, name, err)
			}
		}
	}
	if errors.Is(err, redlock.ErrNoQuorum) {
		w.counts["ErrNoQuorum"]++
		if !tooLate(err) && failed.Failed <= w.nodes-quorum.Size(w.nodes) {
			w.violatedLocked("%s: no quorum, though %d nodes failed: %v", p, failed.Failed, err)
		}
		if w.well() {
			w.violatedLocked("%s: no quorum, though a majority is well: %v", p, err)
		}
	}
}

// tooLate says that it was the time that ran out.
func tooLate(err error) bool {
	return strings.Contains(err.Error(), "too late") || strings.Contains(err.Error(), "was over before")
}

// refusedLocked returns how many nodes have refused the names since then, or
// said that others hold one of them.
func (w *world) refusedLocked(p *process, failed *redlock.QuorumError, held string, since time.Time) int {
	count := 0
	for node := range w.nodes {
		at, ever := w.refusals[refusalOf(node, p.number, failed.Names, held)]
		if ever && !at.Before(since) {
			count++
		}
	}
	return count
}

// countedLocked judges the votes in an error: a node to which nothing happens
// does not fail.
func (w *world) countedLocked(p *process, failed *redlock.QuorumError) {
	if troubled := w.nodes - len(w.untroubled()); w.well() && !p.closed.Load() && failed.Failed > troubled {
		w.violatedLocked("%s: %d nodes failed, though things happen to %d only: %v", p, failed.Failed, troubled, failed)
	}
}

// undecided judges the claim of a renewal, a release or a Resume of a lock that
// h holds that too few nodes answered.
func (w *world) undecided(p *process, h *holder, err error, until time.Time) {
	var failed *redlock.QuorumError
	if !errors.As(err, &failed) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.countedLocked(p, failed)
	if !errors.Is(err, redlock.ErrNoQuorum) {
		return
	}
	size := quorum.Size(w.nodes)
	switch failed.Op {
	case "renew", "acquire": // a number for what was renewed
		w.counts["renewed without a quorum"]++
		if !tooLate(err) && (failed.Granted >= size || failed.Refused > w.nodes-size) {
			w.violatedLocked("%s: no quorum to renew %v, though it had decided: %v", p, h.Names(), err)
		}
		if h.firm && time.Now().Before(until) {
			w.violatedLocked("%s: no quorum to renew %v, though a majority has it and is well: %v", p, h.Names(), err)
		}
	case "release":
		w.counts["released without a quorum"]++
		if failed.Granted+failed.Refused >= size {
			w.violatedLocked("%s: no quorum to release %v, though it had answered: %v", p, h.Names(), err)
		}
		if w.well() && !p.closed.Load() {
			w.violatedLocked("%s: no quorum to release %v, though a majority is well: %v", p, h.Names(), err)
		}
	}
}

// lostTruly judges an operation's claim that the lock is lost: if until, which
// was told before, has not come, the nodes must have forgotten it.
func (w *world) lostTruly(h *holder, err error, until time.Time) {
	if errors.Is(err, redlock.ErrLost) && time.Now().Before(until) && !w.forgets && !h.bounded {
		w.violated("%s was told that %v is lost, though it was valid for %v: %v", h.process, h.Names(), time.Until(until), err)
	}
}

// released judges that all is over for the holder of a lock that was released.
func (w *world) released(h *holder, err error) {
	if errors.Is(err, redlock.ErrClosed) || h.process.closed.Load() {
		return // it may not have been released
	}
	if left := h.Validity(); left > 0 {
		w.violated("%s: %v is valid for %v after its release", h.process, h.Names(), left)
	}
	if h.Err() == nil {
		w.violated("%s: %v has no error after its release", h.process, h.Names())
	}
	if h.context != nil && h.context.Err() == nil {
		w.violated("%s: a context of %v goes on after its release", h.process, h.Names())
	}
	w.mu.Lock()
	w.counts["released"]++
	h.released = true
	w.mu.Unlock()
	w.look()
}

// written judges what a client sends: after a release nothing that sets the
// keys, and no renewal. (What a node has rejected because it had lost its
// scripts is sent again, unless it grants.)
func (w *world) written(node, client int, script *scripts.Script, _, args []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	about := onNode{node, client, args[0]}
	switch {
	case script.Name() == "release":
		w.silenced[about] = true
	case !w.silenced[about], w.shared[args[0]], w.flushed[node] && script.Name() != "acquire":
	default:
		w.violatedLocked("client %d sends %s %s to node %d after the release", client+1, script.Name(), short(args[0]), node+1)
	}
}

// noteFlushed notes that a node is about to lose its scripts.
func (w *world) noteFlushed(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flushed[node] = true
}

// watch looks now and then.
func (w *world) watch(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(7 * time.Millisecond):
			w.look()
		}
	}
}

// look judges all locks at this moment.
func (w *world) look() {
	w.mu.Lock()
	valid := slices.Clone(w.valid)
	for _, h := range w.holders {
		if left := h.Validity(); !h.ended.IsZero() && left > 0 {
			w.violatedLocked("%s: %v had ended and is valid for %v again", h.process, h.Names(), left)
		}
	}
	w.mu.Unlock()
	left := make([]time.Duration, len(valid))
	for i, h := range valid {
		left[i] = h.Validity()
		if left[i] == 0 {
			w.ended(h)
		} else if support := w.support(h, h.trueTime(left[i])); support < quorum.Size(w.nodes) {
			w.violated("%s holds %v for %v, but only %d nodes keep it for so long", h.process, h.Names(), left[i], support)
		}
	}
	for i, h := range valid {
		for k, other := range valid[:i] {
			if left[i] > 0 && left[k] > 0 && h.Token() != other.Token() && haveCommon(h.Names(), other.Names()) {
				w.violated("%s holds %v for %v, and %s holds %v for %v",
					h.process, h.Names(), left[i], other.process, other.Names(), left[k])
			}
		}
	}
}

func haveCommon(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// ended judges a lock whose validity is over: it stays so, and whoever watches
// is told. (Timers follow true time, and clocks do not: a fast clock sees the
// end a little before the timer.)
func (w *world) ended(h *holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.ended.IsZero() {
		h.ended = time.Now()
		if h.firm && h.renewed && !h.bounded && !h.process.closed.Load() && errors.Is(h.Err(), redlock.ErrLost) {
			w.violatedLocked("%s: %v is renewed, a majority has it and is well, and it is lost: %v", h.process, h.Names(), h.Err())
		}
	}
	told := h.done == nil
	if !told {
		select {
		case <-h.done:
			told = true
		default:
		}
	}
	switch {
	case told:
		w.valid = slices.DeleteFunc(w.valid, func(other *holder) bool { return other == h })
	case time.Since(h.ended) > h.ttl/20+time.Millisecond:
		w.violatedLocked("%s is not told that %v ended %v ago", h.process, h.Names(), time.Since(h.ended))
	}
}

// support returns how many of these nodes, or of all, keep the holder's keys for
// d, or did so when they forgot.
func (w *world) support(h *holder, d time.Duration, among ...int) int {
	token, ends := h.Token(), time.Now().Add(d)
	count := 0
	for node := range w.nodes {
		if among != nil && !slices.Contains(among, node) {
			continue
		}
		w.mu.Lock()
		forgot := w.forgot[node]
		w.mu.Unlock()
		all := true
		w.cluster.Node(node).Store(func(s *sim.Store) {
			for _, name := range h.Names() {
				value, ttl, ok := s.Get(name)
				was := forgot[name]
				now := ok && value == token && ttl >= d
				before := was.token == token && !was.ends.Before(ends)
				all = all && (now || before)
			}
		})
		if all {
			count++
		}
	}
	return count
}

// noteForgotten notes what a node that is down is about to forget.
func (w *world) noteForgotten(node int) {
	forgot := make(map[string]memory)
	w.cluster.Node(node).Store(func(s *sim.Store) {
		for _, key := range locks(s) {
			value, ttl, _ := s.Get(key)
			forgot[key] = memory{value, time.Now().Add(ttl)}
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(forgot) == 0 {
		return
	}
	w.counts["forgotten keys"]++
	all := maps.Clone(w.forgot[node]) // it may be being read
	maps.Copy(all, forgot)
	w.forgot[node] = all
}

// locks returns the keys of locks on a node.
func locks(s *sim.Store) []string {
	return slices.DeleteFunc(s.Keys(), func(key string) bool { return strings.HasPrefix(key, "redlock:") })
}

// nothingLeft judges what is on the nodes once everything is well: locks that
// somebody has got and not released, and nothing else.
//
// A Locker that was closed while nodes did not answer has given up after a
// while, and of a lock that was handed on a vote may have been late.
func (w *world) nothingLeft(nodes []int) {
	w.mu.Lock()
	kept := make(map[string]bool)
	for _, h := range w.holders {
		kept[h.Token()] = kept[h.Token()] || !h.released
	}
	w.mu.Unlock()
	for _, node := range nodes {
		left := make(map[string]string)
		w.cluster.Node(node).Store(func(s *sim.Store) {
			for _, key := range locks(s) {
				left[key], _, _ = s.Get(key)
			}
		})
		for key, token := range left {
			_, owner, _ := strings.Cut(token, ".")
			i := slices.IndexFunc(w.processes, func(p *process) bool { return p.String() == owner })
			gaveUp := !w.calm() && w.processes[i].closed.Load()
			if !kept[token] && !gaveUp && !w.shared[token] {
				w.violated("%s is left on node %d under %s of %s, who does not hold it", key, node+1, short(token), owner)
			}
		}
	}
}
