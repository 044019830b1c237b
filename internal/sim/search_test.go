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
	"testing/synctest"
	"time"
)

var (
	firstSeed = flag.Uint64("seed", 0, "seed of the first history, the next have the next; 0: by chance")
	histories = flag.Int("histories", 0, "how many histories a test plays; 0: a few hundred or thousand")
)

// A search plays histories until one violates something.
type search struct {
	test  string // its name
	play  func(seed uint64) *record
	seed  uint64
	count int
	began time.Time

	mu    sync.Mutex // guards what follows
	next  int
	found *record
	told  time.Time
	counts
}

// newSearch returns a search for as many histories as the flags say, or few.
func newSearch(t *testing.T, few int, play func(seed uint64) *record) *search {
	t.Helper()
	s := &search{test: t.Name(), play: play, seed: *firstSeed, count: *histories, counts: make(counts)}
	if s.seed == 0 {
		s.seed = uint64(rand.Uint32())
	}
	if s.count == 0 {
		s.count = few
	}
	return s
}

// run returns the first history in which something was wrong, or nil.
func (s *search) run(t *testing.T) *record {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a history is short, and all of it garbage
	s.began = time.Now()
	s.told = s.began
	t.Run("histories", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for seed, ok := s.take(); ok; seed, ok = s.take() {
					s.played(s.inBubble(t, seed))
				}
			})
		}
	})
	t.Logf("seeds from %d, %v: %v", s.seed, time.Since(s.began).Round(time.Millisecond), s.counts)
	return s.found
}

// inBubble plays one history in a bubble of its own. What is still running
// when it is over, or waits for ever, ends the test with the seed.
func (s *search) inBubble(t *testing.T, seed uint64) (r *record) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("%s: seed %d: %v", s.test, seed, p))
		}
	}()
	synctest.Test(t, func(*testing.T) { r = s.play(seed) })
	return r
}

// require fails the test if a history was found, and shows it.
func (s *search) require(t *testing.T, found *record) {
	t.Helper()
	if found != nil {
		t.Fatalf("%s\nplay it again: go test ./internal/sim -run '^%s$' -seed %d -histories 1 -count 20\n%v",
			found.violation, s.test, found.seed, found)
	}
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

func (s *search) played(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(r.counts)
	if r.violation != "" && s.found == nil {
		s.found = r
	}
	if *histories > 0 && time.Since(s.told) > 5*time.Second {
		s.told = time.Now()
		played := s.counts["histories"]
		perMinute := float64(played) / time.Since(s.began).Minutes()
		fmt.Fprintf(os.Stderr, "%s: %d of %d histories, %.0f a minute, seeds from %d\n", s.test, played, s.count, perMinute, s.seed)
	}
}
