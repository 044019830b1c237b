package sim_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	firstSeed = flag.Uint64("seed", 0, "seed of the first history, the next have the next; 0: by chance")
	histories = flag.Int("histories", 0, "how many histories TestFencing plays; 0: a few thousand")
)

// TestFencing plays histories of the library, and judges the fencing tokens.
// One that failed is played again by
//
//	go test ./internal/sim -run TestFencing$ -seed N -histories 1 -count 20
//
// The seed decides what clients, nodes and the network do. The pauses that the
// library draws for itself it does not decide, nor who is first of two
// goroutines that wake at the same moment, so more than one play may be needed.
func TestFencing(t *testing.T) {
	count := *histories
	if count == 0 {
		count = fewHistories
	}
	s := &search{seed: *firstSeed, count: count, progress: count > 10*fewHistories}
	if s.seed == 0 {
		s.seed = uint64(rand.Uint32())
	}
	found := s.run(t)
	t.Logf("seeds from %d, %v: %v", s.seed, time.Since(s.began).Round(time.Millisecond), s.stat)
	if found != nil {
		t.Fatalf("%s\nseed %d; play it again: go test ./internal/sim -run 'TestFencing$' -seed %[2]d -histories 1 -count 20\n%v",
			found.violation, found.seed, found)
	}
	if *histories == 0 {
		require.Greater(t, s.acquired, 3*s.histories)
		for what, n := range map[string]int{
			"several names": s.several, "resumed": s.resumed, "confirmed": s.confirmed, "refused": s.refused,
			"failed": s.failed, "renewed": s.renewed, "lost": s.lost,
		} {
			require.Greater(t, n, s.histories/10, what)
		}
	}
}

// The control: nodes that claim to have raised their counters when they are
// asked to confirm a number, and have not, are a library without the confirming
// round. TestFencing finds that at once, or it would find nothing.
func TestFencingWithoutTheConfirmingRoundIsFoundOut(t *testing.T) {
	s := &search{seed: uint64(rand.Uint32()), count: 1000, lies: true}
	found := s.run(t)
	t.Logf("seeds from %d, %v: %v", s.seed, time.Since(s.began).Round(time.Millisecond), s.stat)
	require.NotNil(t, found, "nothing was found in %v", s.stat)
	require.Contains(t, found.violation, "token")
	require.Contains(t, found.String(), "VIOLATION")
}

// A search plays histories until one violates something.
type search struct {
	seed     uint64
	count    int
	lies     bool
	progress bool
	began    time.Time

	mu    sync.Mutex // guards what follows
	next  int
	found *history
	told  time.Time
	stat
}

func (s *search) run(t *testing.T) *history {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a history is short, and all of it garbage
	s.began = time.Now()
	s.told = s.began
	t.Run("histories", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for seed, ok := s.take(); ok; seed, ok = s.take() {
					s.played(inBubble(t, seed, s.lies))
				}
			})
		}
	})
	return s.found
}

func (s *search) take() (seed uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found != nil || s.next == s.count {
		return 0, false
	}
	s.next++
	return s.seed + uint64(s.next-1), true
}

func (s *search) played(h *history) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(h.stat)
	if h.violation != "" && s.found == nil {
		s.found = h
	}
	if s.progress && time.Since(s.told) > 5*time.Second {
		s.told = time.Now()
		perMinute := float64(s.histories) / time.Since(s.began).Minutes()
		fmt.Fprintf(os.Stderr, "%d of %d histories, %.0f a minute, seeds from %d\n", s.histories, s.count, perMinute, s.seed)
	}
}
