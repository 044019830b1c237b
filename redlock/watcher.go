package redlock

import (
	"context"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// settling is how long a watcher waits after an announcement for those of the
// other nodes, and for the change itself to arrive everywhere.
const settling = 20 * time.Millisecond

// Watch tells what becomes of the locks whose name matches a pattern, as in
// [Locker.List]. It lists them all again and again ([WithLookEvery]) and compares
// what a quorum says; announcements of releases, and of the rest where the
// holders use [WithEvents], make it look at one lock at once. So an
// announcement that was lost, or that a node forbids, costs delay and nothing
// else, except for what begins and ends between two looks.
//
// Where no release is heard of, a lock that ended in the last moments of its TTL
// counts as expired.
//
// The channel is closed when ctx ends or the Locker is closed. Nothing is
// dropped: while nobody receives, the watching itself waits, and goes on from
// what it finds then. It never holds up anything else.
//
// Watch returns ErrConfig if the pattern or an option makes no sense, ErrClosed
// after Close, and the context's error if ctx has ended already.
func (l *Locker) Watch(ctx context.Context, pattern string, opts ...WatchOption) (<-chan Notice, error) {
	config, err := newWatchConfig(opts)
	if err != nil {
		return nil, err
	}
	if pattern, err = checkPattern(pattern); err != nil {
		return nil, err
	}
	if ended := contextError(ctx); ended != nil {
		return nil, l.nothingSent("watch", []string{pattern}, ended)
	}
	if !l.enter() {
		return nil, ErrClosed
	}
	w := &watcher{
		watchConfig: config,
		locker:      l,
		pattern:     pattern,
		out:         make(chan Notice),
		hints:       l.follow(pattern),
		known:       make(map[string]*sighting),
		ends:        make(map[string]parting),
	}
	go w.run(ctx)
	return w.out, nil
}

// watcher is one Watch. All of it belongs to one goroutine.
type watcher struct {
	watchConfig
	locker  *Locker
	pattern string
	out     chan Notice
	hints   *hints
	known   map[string]*sighting
	// ends are those that were told since the latest listing began.
	ends  map[string]parting
	began bool // there has been a complete listing
	blind bool
}

// sighting is what a watcher knows of one lock.
type sighting struct {
	token, owner string
	since        time.Duration // when it was first seen
	longer       bool          // it may have been there long before
	// first and last bound when the TTL ends that was last seen.
	first, last time.Duration
	told        bool // somebody waits for word of its end
	over        bool // its end was told, though the keys are still there
	stuck       bool
	trouble     trouble
}

// parting is whose lock was seen to have ended, and when.
type parting struct {
	owner string
	at    time.Duration
}

// trouble is a state that should not last.
type trouble struct {
	tokens string        // who was involved
	since  time.Duration // when they were first seen like that
	told   bool
}

// run is the watcher's goroutine. It ends with ctx or when the Locker is closed,
// and Close waits for it.
func (w *watcher) run(ctx context.Context) {
	defer w.locker.calls.Done()
	defer close(w.out)
	defer w.hints.close()
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for w.list(ctx) {
		for looking := true; looking; {
			select {
			case <-w.hints.wake:
				w.locker.await(ctx, nil, settling)
				heard, lost := w.hints.take()
				if !w.inspect(ctx, slices.Sorted(maps.Keys(heard)), heard) {
					return
				}
				looking = !lost
			case <-ticker.C:
				looking = false
			case <-ctx.Done():
				return
			case <-w.locker.closing:
				return
			}
		}
	}
}

// list looks at all locks. It returns false when the watching is over.
func (w *watcher) list(ctx context.Context) bool {
	clear(w.ends)
	found := make(map[string]bool, len(w.known))
	for s, err := range w.locker.List(ctx, w.pattern) {
		var node *NodeError
		switch {
		case err == nil:
			found[s.Name] = true
			if !w.look(ctx, s, hint{}) {
				return false
			}
		case ctx.Err() != nil || w.locker.isClosed():
			return false
		case errors.Is(err, ErrNoQuorum):
			told := w.blind
			w.blind = true
			return told || w.tell(ctx, Notice{Kind: NoticeBlind, Err: err})
		case errors.As(err, &node):
			// The others see enough.
		}
	}
	if w.blind {
		w.blind = false
		if !w.tell(ctx, Notice{Kind: NoticeSighted}) {
			return false
		}
	}
	w.began = true
	var gone []string
	for name := range w.known {
		if !found[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return w.inspect(ctx, gone, nil)
}

// inspect looks at some locks. It returns false when the watching is over.
func (w *watcher) inspect(ctx context.Context, names []string, heard map[string]hint) bool {
	for page := range slices.Chunk(names, pageSize) {
		keys := make([]string, len(page))
		for i, name := range page {
			keys[i] = w.locker.keyPrefix + name
		}
		all, err := w.locker.inspect(ctx, "watch", page, keys)
		if err != nil {
			return false
		}
		for _, s := range all {
			if !w.look(ctx, s, heard[s.Name]) {
				return false
			}
		}
	}
	return true
}

// look compares what the nodes say of a lock with what is known of it, and tells
// the difference. It returns false when the watching is over.
func (w *watcher) look(ctx context.Context, s *Status, heard hint) bool {
	k := w.known[s.Name]
	switch s.State {
	case StateHeld:
		if k == nil || !k.told || k.token != s.Token {
			return w.ended(ctx, s, k, heard) && w.begins(ctx, s)
		}
		return w.goesOn(ctx, s, k, heard)
	case StateFree:
		delete(w.known, s.Name)
		if k == nil {
			return w.passed(ctx, s, heard)
		}
		return w.ended(ctx, s, k, heard)
	case StateSplit, StateLostMajority:
		if k == nil {
			k = &sighting{longer: w.unseeing()}
			w.known[s.Name] = k
		}
		return w.suspicious(ctx, s, k, heard)
	default:
		return true // not known
	}
}

// begins is for a new holder.
func (w *watcher) begins(ctx context.Context, s *Status) bool {
	k := &sighting{token: s.Token, owner: s.Owner, since: s.asked, longer: w.unseeing(), told: true}
	k.first, k.last = s.ends()
	w.known[s.Name] = k
	kind := NoticeAcquired
	if !w.began {
		kind = NoticeFound
	}
	return w.tellOf(ctx, kind, s, k)
}

// goesOn is for a holder that is known.
func (w *watcher) goesOn(ctx context.Context, s *Status, k *sighting, heard hint) bool {
	first, last := s.ends()
	renewed := first > k.last || k.trouble.told
	k.first, k.last, k.trouble = first, last, trouble{}
	if k.over {
		return true
	}
	if heard.since > k.since && heard.by == k.owner && bits.OnesCount64(heard.released) >= s.Quorum {
		// All that holds it now is its minimum hold.
		k.over = true
		return w.tellOf(ctx, NoticeReleased, s, k)
	}
	if renewed && !w.tellOf(ctx, NoticeRenewed, s, k) {
		return false
	}
	if w.stuck > 0 && !k.stuck && s.asked-k.since >= w.stuck {
		k.stuck = true
		return w.tellOf(ctx, NoticeStuck, s, k)
	}
	return true
}

// ended is for a holder that no quorum has any more.
func (w *watcher) ended(ctx context.Context, s *Status, k *sighting, heard hint) bool {
	if k == nil || !k.told || k.over {
		return true
	}
	k.over = true
	w.ends[s.Name] = parting{k.owner, s.answered}
	kind := NoticeExpired
	if s.answered < k.first || heard.released != 0 && heard.by == k.owner {
		kind = NoticeReleased
	}
	return w.tellOf(ctx, kind, s, k)
}

// passed is for a lock that came and went between two looks, if a quorum said so.
func (w *watcher) passed(ctx context.Context, s *Status, heard hint) bool {
	if bits.OnesCount64(heard.released) < s.Quorum {
		return true
	}
	if end, told := w.ends[s.Name]; told && heard.by == end.owner && heard.since <= end.at+settling {
		return true // a listing was quicker than the announcement
	}
	k := &sighting{owner: heard.by, since: s.asked}
	return (!heard.acquired || w.tellOf(ctx, NoticeAcquired, s, k)) && w.tellOf(ctx, NoticeReleased, s, k)
}

// suspicious is for votes of which nobody has a quorum. An attempt or a release
// that is under way looks the same, but not for longer than a node may take to
// answer it and to be told to forget it.
func (w *watcher) suspicious(ctx context.Context, s *Status, k *sighting, heard hint) bool {
	tokens := strings.Join(slices.Sorted(maps.Keys(s.holders())), "\n")
	if k.trouble.tokens != tokens {
		k.trouble = trouble{tokens: tokens, since: s.asked}
	}
	if k.told && !k.over && !k.trouble.told && s.answered >= k.first {
		// Its TTL is over, and what is left on a few nodes ends later.
		return w.ended(ctx, s, k, heard)
	}
	if k.trouble.told || s.asked-k.trouble.since < 2*w.locker.timeout {
		return true
	}
	k.trouble.told = true
	kind := NoticeSplit
	if s.State == StateLostMajority {
		kind = NoticeLostMajority
		k.owner = s.Owner
	}
	if !k.told {
		k.since = k.trouble.since
	}
	k.told, k.over, k.token = true, false, s.Token
	return w.tellOf(ctx, kind, s, k)
}

// unseeing reports whether a lock that is seen for the first time may have been
// held for longer than the pause between two looks.
func (w *watcher) unseeing() bool { return !w.began || w.blind }

func (w *watcher) tellOf(ctx context.Context, kind NoticeKind, s *Status, k *sighting) bool {
	return w.tell(ctx, Notice{Kind: kind, Name: s.Name, Owner: k.owner, TTL: s.TTL, Held: s.asked - k.since, Longer: k.longer, Status: s})
}

// tell waits until somebody takes the notice. It returns false when the watching
// is over.
func (w *watcher) tell(ctx context.Context, n Notice) bool {
	n.At = w.locker.clock.Now()
	select {
	case w.out <- n:
		return true
	case <-ctx.Done():
	case <-w.locker.closing:
	}
	return false
}

// ends returns the first and the last moment when the TTL that was seen may end.
func (s *Status) ends() (first, last time.Duration) {
	if s.TTL == Forever {
		return Forever, Forever
	}
	return s.asked + s.TTL, s.answered + s.TTL + time.Millisecond
}
