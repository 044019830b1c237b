package scripts_test

import (
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/scripts"
)

const (
	mine   = "token.owner"
	hour   = time.Hour
	limit  = int64(1 << 53) // a Lua number is exact below
	broken = "fencing counter is not a number"
)

type (
	state = map[string]string
	keys  = func(...string) []string
)

// acquire makes the call of most scenes: an hour for me.
func acquire(names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call { return scripts.Acquire(k(names...), mine, hour, scripts.Fencing{}) }
}

// again and fresh are acquire for a token that must hold all the keys already,
// or none of them.
func again(names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call {
		return scripts.AcquireAgain(k(names...), mine, hour, scripts.Fencing{Counters: k(counters(names)...), Proposal: 1000, TTL: 24 * hour})
	}
}

func fresh(names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call { return scripts.AcquireNew(k(names...), mine, hour, scripts.Fencing{}) }
}

func fenced(proposal int64, names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call {
		return scripts.Acquire(k(names...), mine, hour, scripts.Fencing{Counters: k(counters(names)...), Proposal: proposal, TTL: 24 * hour})
	}
}

func renew(names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call { return scripts.Renew(k(names...), mine, hour) }
}

func release(announce bool, names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call { return scripts.Release(k(names...), mine, announce) }
}

func confirm(number int64, names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call {
		return scripts.Confirm(k(names...), mine, k(counters(names)...), number, 24*hour)
	}
}

func confirmReturned(number int64, names ...string) func(keys) *scripts.Call {
	return func(k keys) *scripts.Call {
		return scripts.ConfirmReturned(k(names...), mine, k(counters(names)...), number, 24*hour)
	}
}

func counters(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = name + "#"
	}
	return all
}

func granted(fence int64) scripts.Acquired { return scripts.Acquired{Granted: true, Fence: fence} }

// refused is what is said of holders whose tokens are not ours, as "other".
func refused(wait time.Duration, held ...int) scripts.Acquired {
	return scripts.Acquired{Wait: wait, Held: held, Silent: true}
}

// announcing is what is said of holders with tokens as this library makes them.
func announcing(wait time.Duration, held ...int) scripts.Acquired {
	return scripts.Acquired{Wait: wait, Held: held}
}

func TestAcquire(t *testing.T) {
	play(t, []scene{
		{
			name: "gives a free key to the token, with a TTL",
			call: acquire("a"),
			want: granted(0),
			then: state{"a": mine + " for 1h0m0s"},
		},
		{
			name:  "gives several free keys at once and touches no other",
			given: state{"d": "other for 2h0m0s"},
			call:  acquire("a", "b", "c"),
			want:  granted(0),
			then:  state{"a": mine + " for 1h0m0s", "b": mine + " for 1h0m0s", "c": mine + " for 1h0m0s", "d": "other for 2h0m0s"},
		},
		{
			name:  "grants what is ours already and begins the TTL anew",
			given: state{"a": mine + " for 10m0s"},
			call:  acquire("a", "b"),
			want:  granted(0),
			then:  state{"a": mine + " for 1h0m0s", "b": mine + " for 1h0m0s"},
		},
		{
			// A refill whose connection broke may be executed after a later
			// renewal, which has been counted.
			name:  "never shortens a TTL of ours",
			given: state{"a": mine + " for 2h0m0s", "b": mine + " for 10m0s"},
			call:  acquire("a", "b"),
			want:  granted(0),
			then:  state{"a": mine + " for 2h0m0s", "b": mine + " for 1h0m0s"},
		},
		{
			name:  "again: grants what is ours, and counts on",
			given: state{"a": mine + " for 10m0s"},
			call:  again("a"),
			want:  granted(1000),
			then:  state{"a": mine + " for 1h0m0s", "a#": "1000 for 24h0m0s"},
		},
		{
			name:  "again: brings nothing back",
			given: state{"a": mine + " for 10m0s"},
			call:  again("a", "b"),
			want:  announcing(0, 1),
		},
		{
			name:  "again: refuses what others hold",
			given: state{"a": "other for 30m0s"},
			call:  again("a"),
			want:  refused(30*time.Minute, 0),
		},
		{
			name: "new: gives a free key",
			call: fresh("a"),
			want: granted(0),
			then: state{"a": mine + " for 1h0m0s"},
		},
		{
			name:  "new: refuses a key that holds this very token",
			given: state{"b": mine + " for 10m0s"},
			call:  fresh("a", "b"),
			want:  refused(10*time.Minute, 1),
		},
		{
			name:  "gives a key of ours a TTL that has lost its own",
			given: state{"a": mine + " for ever"},
			call:  acquire("a"),
			want:  granted(0),
			then:  state{"a": mine + " for 1h0m0s"},
		},
		{
			name:  "refuses what another holds and says for how long",
			given: state{"a": "other for 30m0s"},
			call:  acquire("a"),
			want:  refused(30*time.Minute, 0),
		},
		{
			name:  "tells a holder that will announce its release from one that will not",
			given: state{"a": "abcdefghijklmnopqrstuv.someone for 30m0s"},
			call:  acquire("a"),
			want:  announcing(30*time.Minute, 0),
		},
		{
			name:  "takes one silent holder among others for silence",
			given: state{"a": "abcdefghijklmnopqrstuv. for 30m0s", "b": "other for 30m0s"},
			call:  acquire("a", "b"),
			want:  refused(30*time.Minute, 0, 1),
		},
		{
			name:  "takes an empty value for a holder",
			given: state{"a": " for 30m0s"},
			call:  acquire("a"),
			want:  refused(30*time.Minute, 0),
		},
		{
			name:  "takes no free key if another is held",
			given: state{"b": "other for 30m0s"},
			call:  acquire("a", "b", "c"),
			want:  refused(30*time.Minute, 1),
		},
		{
			name:  "does not renew what is ours if another is held",
			given: state{"a": mine + " for 10m0s", "b": "other for 30m0s"},
			call:  acquire("a", "b"),
			want:  refused(30*time.Minute, 1),
		},
		{
			name:  "names all held keys and the longest TTL",
			given: state{"a": "other for 30m0s", "c": "other for 2h0m0s", "d": "third for 10m0s"},
			call:  acquire("a", "b", "c", "d"),
			want:  refused(2*hour, 0, 2, 3),
		},
		{
			name:  "waits for ever for a holder without expiry",
			given: state{"a": "other for ever"},
			call:  acquire("a"),
			want:  refused(scripts.Forever, 0),
		},
		{
			name:  "waits for ever if one of several holders has no expiry",
			given: state{"a": "other for 2h0m0s", "b": "other for ever", "c": "other for 30m0s"},
			call:  acquire("a", "b", "c"),
			want:  refused(scripts.Forever, 0, 1, 2),
		},
		{
			name:  "fails on a key of the wrong type and changes nothing",
			given: state{"b": alist},
			call:  acquire("a", "b", "c"),
			err:   "WRONGTYPE",
		},
		{
			name:  "fails on a key of the wrong type behind one that is held",
			given: state{"a": "other for 30m0s", "b": alist},
			call:  acquire("a", "b"),
			err:   "WRONGTYPE",
		},
		{
			name: "refuses a TTL of nothing and changes nothing",
			call: func(k keys) *scripts.Call { return scripts.Acquire(k("a", "b"), mine, 0, scripts.Fencing{}) },
			err:  "expire",
		},
	})
}

func TestAcquireCountsInMilliseconds(t *testing.T) {
	onNodes(t, func(n *node) {
		n = n.forTest(n.t)
		_, err := n.eval(n.conn, scripts.Acquire(n.keys("a"), mine, 654_321*time.Millisecond, scripts.Fencing{}))
		require.NoError(n.t, err)
		left, ok := n.do("PTTL", n.keys("a")[0]).(int64)
		require.True(n.t, ok)
		assert.LessOrEqual(n.t, left, int64(654_321))
		assert.Greater(n.t, left, int64(600_000), "or this machine stood still for a minute")
	})
}

// The most names that a lock may have is 128, and all of them may be held.
func TestAcquireOfManyKeysNamesAllThatAreHeld(t *testing.T) {
	const most = 128
	onNodes(t, func(n *node) {
		n = n.forTest(n.t)
		given, want := state{}, refused(hour)
		names := make([]string, most)
		for i := range names {
			names[i] = fmt.Sprintf("k%d", i)
			given[names[i]] = "other for 1h0m0s"
			want.Held = append(want.Held, i)
		}
		(&scene{given: given, call: acquire(names...), want: want}).play(n)
	})
}

func TestFencing(t *testing.T) {
	const day = " for 24h0m0s"
	taken := func(then state) state {
		then["a"] = mine + " for 1h0m0s"
		return then
	}
	scenes := []scene{
		{
			name: "starts a new counter at the proposal, with a TTL",
			call: fenced(1000, "a"),
			want: granted(1000),
			then: taken(state{"a#": "1000" + day}),
		},
		{
			name:  "raises a lower counter to the proposal",
			given: state{"a#": "998" + day},
			call:  fenced(1000, "a"),
			want:  granted(1000),
			then:  taken(state{"a#": "1000" + day}),
		},
		{
			name:  "goes above a counter that is where the proposal is",
			given: state{"a#": "1000" + day},
			call:  fenced(1000, "a"),
			want:  granted(1001),
			then:  taken(state{"a#": "1001" + day}),
		},
		{
			name:  "goes above a higher counter, whatever the clock says",
			given: state{"a#": "5000" + day},
			call:  fenced(1000, "a"),
			want:  granted(5001),
			then:  taken(state{"a#": "5001" + day}),
		},
		{
			name:  "begins the counter's TTL anew",
			given: state{"a#": "5000 for 10m0s"},
			call:  fenced(1000, "a"),
			want:  granted(5001),
			then:  taken(state{"a#": "5001" + day}),
		},
		{
			name:  "gives a TTL to a counter without one",
			given: state{"a#": "5000 for ever"},
			call:  fenced(1000, "a"),
			want:  granted(5001),
			then:  taken(state{"a#": "5001" + day}),
		},
		{
			name:  "raises all counters to the number above the largest",
			given: state{"a#": "3000" + day, "c#": "5000" + day},
			call:  fenced(4000, "a", "b", "c"),
			want:  granted(5001),
			then: taken(state{
				"b": mine + " for 1h0m0s", "c": mine + " for 1h0m0s",
				"a#": "5001" + day, "b#": "5001" + day, "c#": "5001" + day,
			}),
		},
		{
			name:  "counts on when the same token asks again",
			given: state{"a": mine + " for 10m0s", "a#": "1000" + day},
			call:  fenced(1000, "a"),
			want:  granted(1001),
			then:  taken(state{"a#": "1001" + day}),
		},
		{
			name:  "leaves the counters alone when it refuses",
			given: state{"a#": "7 for 10m0s", "b": "other for 30m0s", "b#": "5 for 10m0s"},
			call:  fenced(1000, "a", "b"),
			want:  refused(30*time.Minute, 1),
		},
		{
			name:  "does not look at counters when not asked",
			given: state{"a#": "garbage for 10m0s"},
			call:  acquire("a"),
			want:  granted(0),
			then:  taken(state{"a#": "garbage for 10m0s"}),
		},
		{
			name:  "fails on a counter of the wrong type and changes nothing",
			given: state{"b#": alist},
			call:  fenced(1000, "a", "b"),
			err:   "WRONGTYPE",
		},
		{
			name:  "gives out the last number that Lua can tell from its neighbours",
			given: state{"a#": fmt.Sprint(limit-2) + day},
			call:  fenced(1000, "a"),
			want:  granted(limit - 1),
			then:  taken(state{"a#": fmt.Sprint(limit-1) + day}),
		},
		{
			name: "takes that number for a proposal, too",
			call: fenced(limit-1, "a"),
			want: granted(limit - 1),
			then: taken(state{"a#": fmt.Sprint(limit-1) + day}),
		},
		{
			name:  "is exhausted after the last number and changes nothing",
			given: state{"a#": fmt.Sprint(limit-1) + day},
			call:  fenced(1000, "a"),
			err:   "exhausted",
		},
		{
			name:  "is exhausted if one of the counters is",
			given: state{"a#": "5 for 10m0s", "b#": fmt.Sprint(limit-1) + day},
			call:  fenced(1000, "a", "b"),
			err:   "exhausted",
		},
		{
			name:  "is exhausted far beyond the last number",
			given: state{"a#": "123456789012345678901234567890" + day},
			call:  fenced(1000, "a"),
			err:   "exhausted",
		},
		{
			name: "refuses a proposal that is out of range",
			call: fenced(limit, "a"),
			err:  "exhausted",
		},
	}
	// What Lua takes for a number is not always a counter, and the two Luas differ
	// in it. nan is smaller than nothing, and so would be overwritten.
	for _, garbage := range []string{"", "garbage", "nan", "-nan", "inf", "-5", "1.5", "0x10", "1e3", "12 ", "12abc"} {
		scenes = append(scenes,
			scene{
				name:  fmt.Sprintf("fails on the counter %q and changes nothing", garbage),
				given: state{"a#": "5 for 10m0s", "b#": garbage + " for 10m0s"},
				call:  fenced(1000, "a", "b"),
				err:   broken,
			})
	}
	play(t, scenes)
}

func TestRenew(t *testing.T) {
	play(t, []scene{
		{
			name:  "begins the TTL anew",
			given: state{"a": mine + " for 10m0s"},
			call:  renew("a"),
			want:  scripts.Ours,
			then:  state{"a": mine + " for 1h0m0s"},
		},
		{
			name:  "renews several keys at once and touches no other",
			given: state{"a": mine + " for 10m0s", "b": mine + " for 20m0s", "c": mine + " for 10m0s"},
			call:  renew("a", "b"),
			want:  scripts.Ours,
			then:  state{"a": mine + " for 1h0m0s", "b": mine + " for 1h0m0s", "c": mine + " for 10m0s"},
		},
		{
			name:  "never shortens a TTL",
			given: state{"a": mine + " for 2h0m0s", "b": mine + " for 10m0s"},
			call:  renew("a", "b"),
			want:  scripts.Ours,
			then:  state{"a": mine + " for 2h0m0s", "b": mine + " for 1h0m0s"},
		},
		{
			name:  "gives a TTL to a key that was made to persist",
			given: state{"a": mine + " for ever"},
			call:  renew("a"),
			want:  scripts.Ours,
			then:  state{"a": mine + " for 1h0m0s"},
		},
		{
			name: "does not revive a key that is gone",
			call: renew("a"),
			want: scripts.Missing,
		},
		{
			name:  "renews nothing if a key is missing",
			given: state{"a": mine + " for 10m0s", "c": mine + " for 10m0s"},
			call:  renew("a", "b", "c"),
			want:  scripts.Missing,
		},
		{
			name:  "does not renew what another holds",
			given: state{"a": "other for 10m0s"},
			call:  renew("a"),
			want:  scripts.Others,
		},
		{
			name:  "renews nothing if another holds a key",
			given: state{"a": mine + " for 10m0s", "b": "other for 10m0s"},
			call:  renew("a", "b"),
			want:  scripts.Others,
		},
		{
			name:  "tells of another holder rather than of a missing key",
			given: state{"a": mine + " for 10m0s", "c": "other for 10m0s"},
			call:  renew("a", "b", "c"),
			want:  scripts.Others,
		},
		{
			name:  "takes an empty value for another holder",
			given: state{"a": " for 10m0s"},
			call:  renew("a"),
			want:  scripts.Others,
		},
		{
			name:  "fails on a key of the wrong type and changes nothing",
			given: state{"a": mine + " for 10m0s", "b": alist},
			call:  renew("a", "b"),
			err:   "WRONGTYPE",
		},
	})
}

func TestRelease(t *testing.T) {
	play(t, []scene{
		{
			name:  "deletes what is ours, without a word",
			given: state{"a": mine + " for 10m0s"},
			call:  release(false, "a"),
			want:  1,
			then:  state{},
		},
		{
			name:  "publishes the owner's label when asked",
			given: state{"a": mine + " for 10m0s"},
			call:  release(true, "a"),
			want:  1,
			then:  state{},
			said:  []string{"a: owner"},
		},
		{
			name:  "deletes a key that never expires",
			given: state{"a": mine + " for ever"},
			call:  release(false, "a"),
			want:  1,
			then:  state{},
		},
		{
			name: "finds nothing to delete, and nothing to tell",
			call: release(true, "a", "b"),
			want: 0,
		},
		{
			name:  "leaves alone what another holds",
			given: state{"a": "other for 10m0s"},
			call:  release(true, "a"),
			want:  0,
		},
		{
			name:  "deletes, counts and announces only ours among several, and touches no other key",
			given: state{"a": mine + " for 10m0s", "b": "other for 10m0s", "d": mine + " for 10m0s", "e": mine + " for 10m0s"},
			call:  release(true, "a", "b", "c", "d"),
			want:  2,
			then:  state{"b": "other for 10m0s", "e": mine + " for 10m0s"},
			said:  []string{"a: owner", "d: owner"},
		},
		{
			name:  "is not kept from the rest by a key of the wrong type",
			given: state{"a": alist, "b": mine + " for 10m0s", "c": alist, "d": mine + " for 10m0s"},
			call:  release(true, "a", "b", "c", "d"),
			want:  2,
			then:  state{"a": alist, "c": alist},
			said:  []string{"b: owner", "d: owner"},
		},
		{
			name:  "releases all the same if it may not publish",
			given: state{"a": mine + " for 10m0s", "b": mine + " for 10m0s"},
			mute:  true,
			call:  release(true, "a", "b"),
			want:  2,
			then:  state{},
		},
		{
			name:  "takes what follows the first dot for the label",
			given: state{"a": "token.host.example:42 (blue) for 10m0s"},
			call:  func(k keys) *scripts.Call { return scripts.Release(k("a"), "token.host.example:42 (blue)", true) },
			want:  1,
			then:  state{},
			said:  []string{"a: host.example:42 (blue)"},
		},
		{
			name:  "announces nobody for a token without a label",
			given: state{"a": "token for 10m0s"},
			call:  func(k keys) *scripts.Call { return scripts.Release(k("a"), "token", true) },
			want:  1,
			then:  state{},
			said:  []string{"a: "},
		},
		{
			name:  "compares the whole token, label and all",
			given: state{"a": mine + " for 10m0s", "b": mine + "2 for 10m0s", "c": "token for 10m0s"},
			call:  func(k keys) *scripts.Call { return scripts.Release(k("a", "b", "c"), "token.", true) },
			want:  0,
		},
		{
			name:  "does not touch the counter",
			given: state{"a": mine + " for 10m0s", "a#": "1000 for 24h0m0s"},
			call:  release(false, "a"),
			want:  1,
			then:  state{"a#": "1000 for 24h0m0s"},
		},
	})
}

func TestConfirm(t *testing.T) {
	const day = " for 24h0m0s"
	held := state{"a": mine + " for 10m0s", "b": mine + " for 10m0s"}
	with := func(more state) state {
		all := maps.Clone(held)
		maps.Copy(all, more)
		return all
	}
	play(t, []scene{
		{
			name:  "raises a lower counter and begins its TTL anew",
			given: with(state{"a#": "1000 for 10m0s"}),
			call:  confirm(1500, "a"),
			want:  true,
			then:  with(state{"a#": "1500" + day}),
		},
		{
			name:  "starts a counter that is not there",
			given: held,
			call:  confirm(1500, "a"),
			want:  true,
			then:  with(state{"a#": "1500" + day}),
		},
		{
			name:  "leaves a counter whose number this node has returned",
			given: with(state{"a#": "1500 for 10m0s", "b#": "1500 for 10m0s"}),
			call:  confirmReturned(1500, "a", "b"),
			want:  true,
		},
		{
			// Somebody else has got the number from this node.
			name:  "raises nothing if a counter is the number, and this node has not returned it",
			given: with(state{"a#": "1000 for 10m0s", "b#": "1500 for 10m0s"}),
			call:  confirm(1500, "a", "b"),
			want:  false,
		},
		{
			name:  "raises nothing if a counter is past the number that this node has returned",
			given: with(state{"a#": "1500 for 10m0s", "b#": "1501 for 10m0s"}),
			call:  confirmReturned(1500, "a", "b"),
			want:  false,
		},
		{
			name:  "raises those of several that are too low",
			given: with(state{"a#": "1499 for 10m0s", "b#": "1000 for 10m0s"}),
			call:  confirm(1500, "a", "b"),
			want:  true,
			then:  with(state{"a#": "1500" + day, "b#": "1500" + day}),
		},
		{
			// This node's vote was not heard, and its number is larger.
			name:  "raises nothing if a counter is past the number",
			given: with(state{"a#": "1000 for 10m0s", "b#": "1501 for 10m0s"}),
			call:  confirm(1500, "a", "b"),
			want:  false,
		},
		{
			name:  "compares numbers, not texts, with a lower one",
			given: with(state{"a#": "999 for 10m0s"}),
			call:  confirm(1500, "a"),
			want:  true,
			then:  with(state{"a#": "1500" + day}),
		},
		{
			name:  "compares numbers, not texts, with a higher one",
			given: with(state{"a#": "10000 for 10m0s"}),
			call:  confirm(1500, "a"),
			want:  false,
		},
		{
			name:  "keeps every digit of a large number",
			given: held,
			call:  confirm(limit-1, "a"),
			want:  true,
			then:  with(state{"a#": fmt.Sprint(limit-1) + day}),
		},
		{
			name:  "raises nothing if a key is missing",
			given: with(state{"a#": "1000 for 10m0s"}),
			call:  confirm(1500, "a", "c"),
			want:  false,
		},
		{
			name:  "raises nothing if another holds a key",
			given: state{"a": mine + " for 10m0s", "b": "other for 10m0s", "a#": "1000 for 10m0s"},
			call:  confirm(1500, "a", "b"),
			want:  false,
		},
		{
			name:  "fails on a key of the wrong type and changes nothing",
			given: state{"a": mine + " for 10m0s", "b": alist, "a#": "1000 for 10m0s"},
			call:  confirm(1500, "a", "b"),
			err:   "WRONGTYPE",
		},
		{
			name:  "fails on a counter of the wrong type and changes nothing",
			given: with(state{"a#": "1000 for 10m0s", "b#": alist}),
			call:  confirm(1500, "a", "b"),
			err:   "WRONGTYPE",
		},
		{
			name:  "fails on a counter that is no number and changes nothing",
			given: with(state{"a#": "1000 for 10m0s", "b#": "garbage for 10m0s"}),
			call:  confirm(1500, "a", "b"),
			err:   broken,
		},
		{
			name:  "does not take nan for high enough",
			given: with(state{"a#": "nan for 10m0s"}),
			call:  confirm(1500, "a"),
			err:   broken,
		},
	})
}

// What the documentation tells operators to grant is enough for every script.
// An embedded node has no ACL.
func TestTheSmallestACLIsEnough(t *testing.T) {
	if os.Getenv(realNode) == "" {
		t.Skipf("%s names no real server", realNode)
	}
	onNodes(t, func(n *node) {
		if n.embedded != nil {
			return
		}
		n = n.forTest(n.t)
		conn := n.login("~"+n.prefix+"*", "&redlock:*", "+eval", "+evalsha", "+script|load",
			"+set", "+get", "+del", "+pexpire", "+pttl", "+publish", "+subscribe", "+psubscribe", "+ping")
		notices := n.listen()
		for _, step := range []struct {
			call func(keys) *scripts.Call
			want any
		}{
			{fenced(1000, "a", "b"), granted(1000)},
			{renew("a", "b"), scripts.Ours},
			{confirm(2000, "a", "b"), true},
			{release(true, "a", "b"), 2},
		} {
			call := step.call(n.keys)
			reply, err := n.eval(conn, call)
			require.NoError(n.t, err, call.Script.Name())
			got, err := parse(call, reply)
			require.NoError(n.t, err)
			assert.Equal(n.t, step.want, got)
		}
		assert.Equal(n.t, []string{"a: owner", "b: owner"}, notices())
		assert.Equal(n.t, state{"a#": "2000 for 24h0m0s", "b#": "2000 for 24h0m0s"}, n.state())
	})
}

func TestEveryScriptIsListedOnceUnderItsIndex(t *testing.T) {
	all := scripts.All()
	require.Len(t, all, scripts.Count)
	names := map[string]bool{}
	for i, script := range all {
		assert.Equal(t, i, script.Index())
		names[script.Name()] = true

		file, err := os.ReadFile("lua/" + script.Name() + ".lua")
		require.NoError(t, err)
		assert.Equal(t, string(file), script.Source())
	}
	assert.Len(t, names, scripts.Count)

	files, err := os.ReadDir("lua")
	require.NoError(t, err)
	assert.Len(t, files, scripts.Count, "a file that nobody embeds")
}

// The plain SET grants where the script grants, leaves the key as the script
// leaves it, and where it does not it changes nothing.
func TestThePlainSetGrantsWhatTheScriptGrants(t *testing.T) {
	for name, given := range map[string]string{
		"free": "", "another's": "another for 1h0m0s", "another's for ever": "another for ever", "a list": alist,
	} {
		t.Run(name, func(t *testing.T) {
			onNodes(t, func(n *node) {
				n = n.forTest(n.t)
				before := map[string]string{}
				if given != "" {
					before["set"], before["script"] = given, given
				}
				n.prepare(before)
				plain := acquire("set")(n.keys).PlainFirst()
				require.True(n.t, plain.Plain)
				reply := n.do("SET", plain.AppendSet(nil)...)
				answer, err := n.eval(n.conn, acquire("script")(n.keys))
				if given != "" {
					require.Nil(n.t, reply)
					require.Equal(n.t, before, n.state())
					return
				}
				require.NoError(n.t, err)
				for _, r := range []any{reply, answer} {
					acquired, err := scripts.ParsePlain(r)
					require.NoError(n.t, err)
					require.Equal(n.t, granted(0), acquired)
				}
				state := n.state()
				require.NotEmpty(n.t, state["script"])
				require.Equal(n.t, state["script"], state["set"])
			})
		})
	}
}

// A SET knows one key and no counter, and cannot tell a key that is gone from
// one that was never there.
func TestOnlyWhatASetCanDoIsPlain(t *testing.T) {
	one, two := []string{"a"}, []string{"a", "b"}
	unfenced, fenced := scripts.Fencing{}, scripts.Fencing{Counters: one, Proposal: 1, TTL: hour}
	assert.True(t, scripts.Acquire(one, mine, hour, unfenced).PlainFirst().Plain)
	assert.True(t, scripts.AcquireNew(one, mine, hour, unfenced).PlainFirst().Plain)
	for _, call := range []*scripts.Call{
		scripts.Acquire(two, mine, hour, unfenced),
		scripts.Acquire(one, mine, hour, fenced),
		scripts.AcquireNew(two, mine, hour, unfenced),
		scripts.AcquireAgain(one, mine, hour, unfenced),
		scripts.Renew(one, mine, hour),
		scripts.Release(one, mine, true),
		scripts.Linger(one, mine, hour),
		scripts.Confirm(one, mine, one, 1, hour),
		scripts.ConfirmReturned(one, mine, one, 1, hour),
	} {
		assert.False(t, call.PlainFirst().Plain)
	}
}

func TestOnlyAcquireGrantsAndOnlyRenewProlongs(t *testing.T) {
	k := []string{"a"}
	assert.True(t, scripts.Renew(k, mine, hour).Prolongs)
	for _, call := range []*scripts.Call{
		scripts.Release(k, mine, true), // these must be sent again though nothing is wanted any more
		scripts.Linger(k, mine, hour),
	} {
		assert.False(t, call.Prolongs)
	}
	assert.True(t, scripts.Acquire(k, mine, hour, scripts.Fencing{}).Grants)
	assert.True(t, scripts.Acquire(k, mine, hour, scripts.Fencing{Counters: k, Proposal: 1, TTL: hour}).Grants)
	assert.False(t, scripts.Renew(k, mine, hour).Grants)
	assert.False(t, scripts.Release(k, mine, true).Grants)
	assert.False(t, scripts.Confirm(k, mine, k, 1, hour).Grants)
}
