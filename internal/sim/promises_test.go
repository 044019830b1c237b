package sim_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPromises plays general histories: clients of all kinds, whose operations
// are cancelled and whose Lockers are closed at any point, on nodes to which
// everything happens that is assumed to happen. It judges them against true
// time, which no client and no node knows:
//
//   - Two never hold a lock inside their validity at one moment, a lock that has
//     ended stays ended, and whoever watches it is told.
//   - Validity is never more than what a quorum of nodes will still keep.
//   - Fencing tokens grow.
//   - Nothing is left on a node when everything is well again.
//   - Once a release has been written to a node, nothing that could set or
//     lengthen the keys is. After Release and Close everything is over.
//   - When a majority of nodes is well and nobody holds a lock, whoever waits
//     for it gets it, soon; and within milliseconds if its release is announced
//     on a network that works.
//   - ErrTaken, ErrNoQuorum and ErrLost are true, and nobody who gave up is
//     kept waiting.
//
// It is replayed like [TestFencing].
func TestPromises(t *testing.T) {
	s := newSearch(t, fewWorlds, func(seed uint64) *record { return playWorld(seed, nil) })
	s.require(t, s.run(t))
	if *histories == 0 {
		played := s.counts["histories"]
		require.Greater(t, s.counts["acquired"], 3*played)
		for _, what := range []string{
			"acquired several names", "renewed", "resumed", "released", "ErrTaken", "ErrNoQuorum", "cancelled",
			"renewed without a quorum", "released without a quorum", "handed to two",
			"Do", "lost", "closed in the middle", "forgotten keys", "handed over", "fencing tokens", "paused", "got it in the end",
		} {
			require.Greater(t, s.counts[what], played/50, what)
		}
	}
}

// The controls: what the promises assume is taken away, and TestPromises must
// find that two hold one lock, or it would find nothing.
func TestPromisesAreBrokenByClocksBeyondTheDriftFactor(t *testing.T) {
	requireTwoHolders(t, func(p *plan) { p.skew = 0.03 })
}

func TestPromisesAreBrokenByNodesThatForgetWithoutTheRestartGuard(t *testing.T) {
	requireTwoHolders(t, func(p *plan) { p.forgets, p.unguarded, p.reach = true, true, anyNode })
}

func requireTwoHolders(t *testing.T, change func(*plan)) {
	t.Helper()
	two := regexp.MustCompile(`^client \d+ holds .*, and client \d+ holds `)
	s := newSearch(t, 3000, func(seed uint64) *record { return playWorld(seed, change).only(two) })
	require.NotNil(t, s.run(t))
}
