package quorum_test

import (
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/quorum"
)

// The rules are checked against a second implementation that is as dumb as can
// be: it writes down every way in which the nodes that are still out could
// vote, counts each of them when nobody is out any more, and looks at what they
// have in common. It shares no arithmetic with the package.
//
// What each rule promises:
//
//   - Both: a verdict is final. Whatever comes later, it does not change. A
//     tally with nobody out has one.
//   - Early decides at the earliest moment at which the outcome is certain: it
//     is Won if and only if every completion has a majority of grants, Lost if
//     and only if none has.
//   - Certain is Won when Early is. It is Lost only if the outcome is certain
//     and, besides, Denied (every completion has so many refusals that the rest
//     is no majority), or Unheard (the same with nodes that did not answer), or
//     nobody is out.

// biggest is the largest cluster that is enumerated. Even sizes, which New
// refuses, are included: the count has no reason to be wrong for them.
const biggest = 9

// tallies yields every tally of up to biggest nodes.
func tallies() iter.Seq[quorum.Tally] {
	return func(yield func(quorum.Tally) bool) {
		for n := 1; n <= biggest; n++ {
			for t := range completions(quorum.Tally{Nodes: n}, true) {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// completions yields every tally that t can still become when nobody is out any
// more; with partial, those on the way there as well.
func completions(t quorum.Tally, partial bool) iter.Seq[quorum.Tally] {
	out := t.Nodes - t.Granted - t.Refused - t.Failed - t.Unknown
	return func(yield func(quorum.Tally) bool) {
		for g := 0; g <= out; g++ {
			for r := 0; g+r <= out; r++ {
				for f := 0; g+r+f <= out; f++ {
					for u := 0; g+r+f+u <= out; u++ {
						if !partial && g+r+f+u != out {
							continue
						}
						if !yield(quorum.Tally{t.Nodes, t.Granted + g, t.Refused + r, t.Failed + f, t.Unknown + u}) {
							return
						}
					}
				}
			}
		}
	}
}

// A forecast is what all completions of a tally have in common.
type forecast struct {
	wins, loses     bool // every completion is a majority of grants; none is
	denied, unheard bool // in every completion the others are no majority
	over            bool // there is but one completion
}

func majority(votes, nodes int) bool { return votes+votes > nodes }

func foresee(t quorum.Tally) forecast {
	f := forecast{true, true, true, true, false}
	count := 0
	for c := range completions(t, false) {
		count++
		f.wins = f.wins && majority(c.Granted, c.Nodes)
		f.loses = f.loses && !majority(c.Granted, c.Nodes)
		f.denied = f.denied && !majority(c.Nodes-c.Refused, c.Nodes)
		f.unheard = f.unheard && !majority(c.Nodes-c.Failed-c.Unknown, c.Nodes)
	}
	f.over = count == 1
	return f
}

func dumbEarly(t quorum.Tally) quorum.Verdict {
	switch f := foresee(t); {
	case f.wins:
		return quorum.Won
	case f.loses:
		return quorum.Lost
	}
	return quorum.Undecided
}

func dumbCertain(t quorum.Tally) quorum.Verdict {
	switch f := foresee(t); {
	case f.wins:
		return quorum.Won
	case f.loses && (f.denied || f.unheard || f.over):
		return quorum.Lost
	}
	return quorum.Undecided
}

func TestEveryTallyIsJudgedAsByEnumeration(t *testing.T) {
	count := 0
	for tally := range tallies() {
		count++
		f := foresee(tally)
		require.Equal(t, dumbEarly(tally), quorum.Early(tally), "Early(%+v)", tally)
		require.Equal(t, dumbCertain(tally), quorum.Certain(tally), "Certain(%+v)", tally)
		require.Equal(t, f.denied, tally.Denied(), "%+v.Denied()", tally)
		require.Equal(t, f.unheard, tally.Unheard(), "%+v.Unheard()", tally)
		require.Equal(t, f.over, tally.Outstanding() == 0, "%+v.Outstanding()", tally)
	}
	// The number of ways to put n votes into five boxes, for each n. A loop that
	// went wrong would make this test pass in silence.
	assert.Equal(t, 5+15+35+70+126+210+330+495+715, count)
}

func TestAVerdictIsFinal(t *testing.T) {
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for tally := range tallies() {
				verdict := rule(tally)
				if verdict == quorum.Undecided {
					require.Positive(t, tally.Outstanding(), "nobody is out and nothing is decided: %+v", tally)
					continue
				}
				for later := range completions(tally, true) {
					require.Equal(t, verdict, rule(later), "%+v turned into %+v", tally, later)
				}
			}
		})
	}
}

func TestCertainNeverContradictsEarlyNorOvertakesIt(t *testing.T) {
	for tally := range tallies() {
		early, certain := quorum.Early(tally), quorum.Certain(tally)
		if certain != quorum.Undecided {
			require.Equal(t, early, certain, "%+v", tally)
		}
		if early == quorum.Won {
			require.Equal(t, quorum.Won, certain, "a won vote waits for nobody: %+v", tally)
		}
		if certain == quorum.Lost {
			require.True(t, tally.Denied() || tally.Unheard() || tally.Outstanding() == 0, "%+v", tally)
		}
	}
}

func TestAnOddClusterIsNotDeniedAndUnheardAtOnce(t *testing.T) {
	for tally := range tallies() {
		if tally.Nodes%2 == 1 {
			require.False(t, tally.Denied() && tally.Unheard(), "%+v", tally)
		}
	}
}

func TestAQuorumIsTheSmallestNumberOfWhichTwoMustMeet(t *testing.T) {
	for n := 1; n <= 99; n++ {
		assert.Greater(t, 2*quorum.Size(n), n, "two quorums of %d nodes need not share one", n)
		assert.LessOrEqual(t, 2*(quorum.Size(n)-1), n, "fewer of %d nodes would do", n)
		assert.Equal(t, quorum.Size(n), quorum.Tally{Nodes: n}.Quorum())
	}
}

func TestAddCountsEachVoteInItsPlace(t *testing.T) {
	for _, test := range []struct {
		vote quorum.Vote
		want quorum.Tally
	}{
		{quorum.Pending, quorum.Tally{Nodes: 5}},
		{quorum.Granted, quorum.Tally{Nodes: 5, Granted: 1}},
		{quorum.Refused, quorum.Tally{Nodes: 5, Refused: 1}},
		{quorum.Failed, quorum.Tally{Nodes: 5, Failed: 1}},
		{quorum.Unknown, quorum.Tally{Nodes: 5, Unknown: 1}},
	} {
		t.Run(fmt.Sprint(test.vote), func(t *testing.T) {
			tally := quorum.Tally{Nodes: 5}
			tally.Add(test.vote)
			assert.Equal(t, test.want, tally)
		})
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	var sink quorum.Verdict
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		tally := quorum.Tally{Nodes: 5}
		for _, v := range []quorum.Vote{quorum.Granted, quorum.Refused, quorum.Failed, quorum.Unknown, quorum.Granted} {
			tally.Add(v)
			sink = quorum.Early(tally) + quorum.Certain(tally)
		}
	}))
	assert.Equal(t, quorum.Lost+quorum.Lost, sink)
}
