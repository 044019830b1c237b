package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFencing plays histories of the library, and judges the fencing tokens.
// One that failed is played again by
//
//	go test ./internal/sim -run '^TestFencing$' -seed N -histories 1 -count 20
//
// The seed decides what clients, nodes and the network do. The pauses that the
// library draws for itself it does not decide, nor who is first of two
// goroutines that wake at the same moment, so more than one play may be needed.
func TestFencing(t *testing.T) {
	s := newSearch(t, fewHistories, func(seed uint64) *record { return playFencing(seed, false) })
	s.require(t, s.run(t))
	if *histories == 0 {
		played := s.counts["histories"]
		require.Greater(t, s.counts["acquired"], 3*played)
		for _, what := range []string{
			"acquired several names", "resumed", "votes for confirmed numbers", "refused", "failed", "renewed", "lost",
		} {
			require.Greater(t, s.counts[what], played/10, what)
		}
	}
}

// The control: nodes that claim to have raised their counters when they are
// asked to confirm a number, and have not, are a library without the confirming
// round. TestFencing finds that at once, or it would find nothing.
func TestFencingWithoutTheConfirmingRoundIsFoundOut(t *testing.T) {
	s := newSearch(t, 1000, func(seed uint64) *record { return playFencing(seed, true) })
	found := s.run(t)
	require.NotNil(t, found)
	require.Contains(t, found.violation, "token")
	require.Contains(t, found.String(), "VIOLATION")
}
