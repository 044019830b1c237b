package demo_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/demo"
)

func hold(contender int, from, until time.Duration) demo.Hold {
	return demo.Hold{Contender: contender, From: from, Until: until}
}

// agreed is what the guarded sections see of n holds that exclude each other.
func agreed(n int) demo.Witness { return demo.Witness{Sections: n, Counter: n} }

func TestJudgeFindsEveryOverlap(t *testing.T) {
	type pair struct {
		first, second int // contenders
		length        time.Duration
	}
	for name, test := range map[string]struct {
		holds    []demo.Hold
		overlaps []pair
		closest  time.Duration
	}{
		"one hold":               {holds: []demo.Hold{hold(0, 1, 5)}, closest: -1},
		"one after the other":    {holds: []demo.Hold{hold(0, 1, 5), hold(1, 7, 9), hold(0, 20, 30)}, closest: 2},
		"one at another's end":   {holds: []demo.Hold{hold(0, 1, 5), hold(1, 5, 9)}, closest: 0},
		"in any order":           {holds: []demo.Hold{hold(0, 20, 30), hold(1, 1, 5), hold(2, 8, 11)}, closest: 3},
		"by the least that is":   {holds: []demo.Hold{hold(0, 1, 6), hold(1, 5, 9)}, overlaps: []pair{{0, 1, 1}}, closest: -1},
		"unordered, overlapping": {holds: []demo.Hold{hold(0, 5, 9), hold(1, 1, 6)}, overlaps: []pair{{1, 0, 1}}, closest: -1},
		"one within another":     {holds: []demo.Hold{hold(0, 1, 100), hold(1, 50, 60)}, overlaps: []pair{{0, 1, 10}}, closest: -1},
		"the same twice":         {holds: []demo.Hold{hold(0, 1, 4), hold(1, 1, 4)}, overlaps: []pair{{0, 1, 3}}, closest: -1},
		"the same contender":     {holds: []demo.Hold{hold(3, 1, 4), hold(3, 2, 5)}, overlaps: []pair{{3, 3, 2}}, closest: -1},
		"a long one that outlasts its neighbour": {
			holds:    []demo.Hold{hold(0, 0, 100), hold(1, 10, 20), hold(2, 30, 40)},
			overlaps: []pair{{0, 1, 10}, {0, 2, 10}}, closest: -1,
		},
		"three at once": {
			holds:    []demo.Hold{hold(0, 0, 10), hold(1, 2, 12), hold(2, 4, 14)},
			overlaps: []pair{{0, 1, 8}, {0, 2, 6}, {1, 2, 8}}, closest: -1,
		},
		"one without a length": {holds: []demo.Hold{hold(0, 0, 10), hold(1, 5, 5)}, closest: 0},
		"one that was over before it began": {
			holds: []demo.Hold{hold(0, 5, 3), hold(1, 4, 6)}, closest: 0,
		},
		"after a gap, before a long one has ended": {
			holds:    []demo.Hold{hold(0, 0, 10), hold(1, 11, 50), hold(2, 20, 30), hold(3, 49, 60)},
			overlaps: []pair{{1, 2, 10}, {1, 3, 1}}, closest: -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(test.holds)
			v := demo.Judge(test.holds, agreed(len(test.holds)))
			var found []pair
			for _, o := range v.Overlaps {
				found = append(found, pair{o.First.Contender, o.Second.Contender, o.Until - o.From})
			}
			assert.ElementsMatch(t, test.overlaps, found)
			assert.Equal(t, len(test.overlaps) == 0, v.OK())
			assert.Equal(t, test.closest, v.Closest)
			assert.Equal(t, len(test.holds), v.Holds)
			assert.Equal(t, before, test.holds, "the holds were changed")
		})
	}
}

func TestJudgeBelievesTheWitnessToo(t *testing.T) {
	holds := []demo.Hold{hold(0, 1, 5), hold(1, 6, 9)}
	require.True(t, demo.Judge(holds, agreed(2)).OK())
	assert.False(t, demo.Judge(holds, demo.Witness{Sections: 2, Counter: 1}).OK(), "an update was lost")
	assert.False(t, demo.Judge(holds, demo.Witness{Sections: 2, Counter: 2, Met: 1}).OK(), "holders met")
	assert.True(t, demo.Judge(holds, agreed(1)).OK(), "a section that was given up counts for neither")
}

func TestJudgeTakesNothingForNoProof(t *testing.T) {
	assert.False(t, demo.Judge(nil, agreed(0)).OK())
}

func TestJudgeCountsContendersThatHeld(t *testing.T) {
	v := demo.Judge([]demo.Hold{hold(4, 1, 2), hold(7, 3, 4), hold(4, 5, 6)}, agreed(3))
	assert.Equal(t, 2, v.Contenders)
}

// The sweep agrees with a comparison of everything with everything.
func TestJudgeAgreesWithADumbSecondOpinion(t *testing.T) {
	agree := func(seed uint64) bool {
		random := rand.New(rand.NewPCG(seed, 0))
		var holds []demo.Hold
		for i := range random.IntN(30) {
			from := time.Duration(random.IntN(200))
			holds = append(holds, hold(i, from, from+time.Duration(random.IntN(12)-1)))
		}
		overlaps, closest := 0, time.Duration(-1)
		for i, a := range holds {
			for _, b := range holds[i+1:] {
				if max(a.From, b.From) < min(a.Until, b.Until) {
					overlaps++
				}
			}
		}
		v := demo.Judge(holds, agreed(len(holds)))
		if overlaps == 0 && len(holds) > 1 {
			closest = v.Closest // checked by example only
		}
		return len(v.Overlaps) == overlaps && v.Closest == closest
	}
	require.NoError(t, quick.Check(agree, &quick.Config{MaxCount: 5000}))
}

func TestPlanNeverTakesMoreThanAMinority(t *testing.T) {
	for _, nodes := range []int{3, 5, 7, 9, 63} {
		for _, duration := range []time.Duration{2 * time.Second, 3 * time.Second, 10 * time.Second, time.Hour} {
			plan := demo.Plan(nodes, duration)
			require.NotEmpty(t, plan)
			for _, o := range plan {
				assert.Less(t, o.Node, nodes)
				assert.Less(t, o.From, o.Until)
				assert.Less(t, o.Until, duration)
				// The number of outages only grows where one begins.
				down := 0
				for _, other := range plan {
					if other.From <= o.From && o.From <= other.Until {
						down++
						assert.True(t, other == o || other.Node != o.Node, "node %d twice", o.Node)
					}
				}
				assert.LessOrEqual(t, down, demo.Minority(nodes), "%d nodes, at %v", nodes, o.From)
			}
			assert.True(t, slices.IsSortedFunc(plan, func(a, b demo.Outage) int { return int(a.From - b.From) }))
		}
	}
}
