package quorum_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/quorum"
)

// rounds is how often a test with real concurrency plays a new round.
const rounds = 300

// A game is a round that keeps a record of what it calls.
type game struct {
	quorum.Round[string]
	rule    quorum.Rule
	ballots []quorum.Ballot[string] // that will be cast, by node

	// Written by Settled and read after Wait without any synchronisation: the
	// race detector proves that the one happens before the other.
	verdict quorum.Verdict
	tally   quorum.Tally
	settled int

	mu         sync.Mutex // guards what follows
	stragglers map[int][]quorum.Ballot[string]
}

func newGame(n int, rule quorum.Rule, ballots ...quorum.Ballot[string]) *game {
	g := &game{rule: rule, ballots: ballots, stragglers: map[int][]quorum.Ballot[string]{}}
	g.Settled = func(verdict quorum.Verdict, tally quorum.Tally) {
		g.settled++
		g.verdict, g.tally = verdict, tally
	}
	g.Straggler = func(node int, ballot quorum.Ballot[string]) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.stragglers[node] = append(g.stragglers[node], ballot)
	}
	g.Init(n, rule)
	return g
}

// randomGame has an odd number of nodes whose votes are drawn by lot.
func randomGame() *game {
	n := 1 + 2*rand.IntN(5)
	ballots := make([]quorum.Ballot[string], n)
	for i := range ballots {
		ballots[i] = quorum.Ballot[string]{
			Vote:  []quorum.Vote{quorum.Granted, quorum.Granted, quorum.Refused, quorum.Failed, quorum.Unknown}[rand.IntN(5)],
			Reply: "reply of node " + strconv.Itoa(i),
			Err:   errors.New("error of node " + strconv.Itoa(i)),
		}
	}
	return newGame(n, []quorum.Rule{quorum.Early, quorum.Certain}[rand.IntN(2)], ballots...)
}

// start casts every ballot on a goroutine of its own, all at the same time, as
// soon as the gate opens.
func (g *game) start(wg *sync.WaitGroup, gate <-chan struct{}) {
	for node, ballot := range g.ballots {
		wg.Go(func() {
			<-gate
			g.Cast(node, ballot)
		})
	}
}

// check holds the record against what must be true of any round with all votes
// in. It returns the nodes whose votes were counted before the verdict.
func (g *game) check(t *testing.T) {
	t.Helper()
	require.Equal(t, 1, g.settled, "Settled is called once")
	require.Equal(t, g.verdict, g.rule(g.tally), "the verdict is what the rule says of the votes so far")

	var all quorum.Tally
	all.Nodes = len(g.ballots)
	for _, ballot := range g.ballots {
		all.Add(ballot.Vote)
	}
	verdict, tally := g.Count()
	require.Equal(t, all, tally, "every vote counts in the end")
	require.Equal(t, g.rule(all), verdict)
	require.Equal(t, verdict, g.verdict, "the verdict has changed")
	require.Equal(t, g.ballots, g.Ballots())

	for node, ballots := range g.stragglers {
		require.Equal(t, []quorum.Ballot[string]{g.ballots[node]}, ballots, "a straggler is handed over once, as it was cast")
	}
}

func TestConcurrentVotesComeToOneVerdict(t *testing.T) {
	for range rounds {
		g := randomGame()
		gate := make(chan struct{})
		var wg sync.WaitGroup
		g.start(&wg, gate)
		for range 2 {
			wg.Go(func() {
				verdict := g.Wait(t.Context(), nil)
				assert.Equal(t, 1, g.settled, "Wait returned before Settled had been called")
				assert.Equal(t, g.verdict, verdict)
			})
		}
		wg.Go(func() { // somebody looks on
			<-gate
			for final := quorum.Undecided; ; {
				verdict, tally := g.Count()
				g.Ballots()
				if final != quorum.Undecided && verdict != final {
					assert.Fail(t, "the verdict has changed", "%v to %v", final, verdict)
				}
				if final = verdict; tally.Outstanding() == 0 {
					return
				}
			}
		})
		close(gate)
		wg.Wait()
		g.check(t)

		counted := g.tally.Nodes - g.tally.Outstanding()
		require.Len(t, g.stragglers, len(g.ballots)-counted, "a vote is either counted for the verdict or a straggler")
	}
}

func TestAVoteIsCountedOrAStragglerEvenIfTheWaitingIsGivenUpMeanwhile(t *testing.T) {
	gaveUp := 0
	for range rounds {
		g := randomGame()
		gate := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		stop := make(chan struct{})
		quit := []func(){cancel, func() { close(stop) }}[rand.IntN(2)]
		verdict, waited := quorum.Undecided, make(chan struct{})
		var wg sync.WaitGroup
		g.start(&wg, gate)
		wg.Go(func() {
			<-gate
			quit()
		})
		wg.Go(func() {
			defer close(waited)
			verdict = g.Wait(ctx, stop)
		})
		close(gate)
		<-waited
		before := g.Ballots() // what the caller finds, and has to deal with, itself
		wg.Wait()
		cancel()
		g.check(t)

		counted := g.tally.Nodes - g.tally.Outstanding()
		if verdict != quorum.Undecided {
			require.Equal(t, g.verdict, verdict)
			require.Len(t, g.stragglers, len(g.ballots)-counted)
			continue
		}
		gaveUp++
		require.Greater(t, len(g.stragglers), len(g.ballots)-counted,
			"Wait returned Undecided although the deciding vote had been cast before")
		for node, ballot := range before {
			require.True(t, ballot.Vote != quorum.Pending || len(g.stragglers[node]) == 1, "the vote of node %d has been lost", node)
		}
	}
	t.Logf("given up before the verdict in %d of %d rounds", gaveUp, rounds)
}

func TestAVerdictBeatsWhateverEndsTheWaitingLater(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stop := make(chan struct{})
	g := newGame(3, quorum.Early)
	g.Cast(0, quorum.Ballot[string]{Vote: quorum.Granted})
	g.Cast(1, quorum.Ballot[string]{Vote: quorum.Granted})
	cancel()
	close(stop)
	for range 100 { // a select among what is ready would draw lots
		require.Equal(t, quorum.Won, g.Wait(ctx, stop))
	}
	g.Cast(2, quorum.Ballot[string]{Vote: quorum.Refused})
	assert.Len(t, g.stragglers, 1)
}

func TestWaitReturnsAfterSettledEvenWhenTheContextEndsInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		settling, proceed := make(chan struct{}), make(chan struct{})
		var round quorum.Round[int]
		round.Settled = func(quorum.Verdict, quorum.Tally) {
			close(settling)
			<-proceed
		}
		round.Init(1, quorum.Certain)
		go round.Cast(0, quorum.Ballot[int]{Vote: quorum.Refused})
		<-settling
		cancel()
		done := make(chan quorum.Verdict, 1)
		go func() { done <- round.Wait(ctx, nil) }()
		synctest.Wait()
		require.Empty(t, done, "Wait returned while Settled was running")
		close(proceed)
		assert.Equal(t, quorum.Lost, <-done)
	})
}

func TestWaitWaits(t *testing.T) {
	for name, end := range map[string]func(g *game, cancel func(), stop chan struct{}) (want quorum.Verdict){
		"for the verdict": func(g *game, _ func(), _ chan struct{}) quorum.Verdict {
			g.Cast(1, quorum.Ballot[string]{Vote: quorum.Granted})
			return quorum.Won
		},
		"until the context ends": func(_ *game, cancel func(), _ chan struct{}) quorum.Verdict {
			cancel()
			return quorum.Undecided
		},
		"until stop is closed": func(_ *game, _ func(), stop chan struct{}) quorum.Verdict {
			close(stop)
			return quorum.Undecided
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stop := make(chan struct{})
				g := newGame(3, quorum.Early)
				done := make(chan quorum.Verdict, 1)
				go func() { done <- g.Wait(ctx, stop) }()
				g.Cast(0, quorum.Ballot[string]{Vote: quorum.Granted})
				synctest.Wait()
				require.Empty(t, done, "Wait did not wait")
				want := end(g, cancel, stop)
				assert.Equal(t, want, <-done)
			})
		})
	}
}

func TestBallotsAreASnapshot(t *testing.T) {
	g := newGame(3, quorum.Early)
	g.Cast(1, quorum.Ballot[string]{Vote: quorum.Refused, Reply: "held", Err: assert.AnError})
	snapshot := g.Ballots()
	want := []quorum.Ballot[string]{{}, {Vote: quorum.Refused, Reply: "held", Err: assert.AnError}, {}}
	require.Equal(t, want, snapshot)

	g.Cast(0, quorum.Ballot[string]{Vote: quorum.Granted})
	assert.Equal(t, want, snapshot, "a later vote shows up in a snapshot")

	snapshot[1] = quorum.Ballot[string]{}
	assert.Equal(t, quorum.Refused, g.Ballots()[1].Vote, "the snapshot is the round's own memory")
}

func TestARoundNeedsNeitherSettledNorStraggler(t *testing.T) {
	var round quorum.Round[int]
	round.Init(3, quorum.Early)
	for node := range 3 {
		round.Cast(node, quorum.Ballot[int]{Vote: quorum.Granted, Reply: node})
	}
	assert.Equal(t, quorum.Won, round.Wait(t.Context(), nil))
}

func TestSettledAndStragglerMayLookAtTheRound(t *testing.T) {
	var round quorum.Round[int]
	looked := 0
	look := func() {
		verdict, _ := round.Count()
		assert.Equal(t, quorum.Won, verdict)
		assert.Len(t, round.Ballots(), 3)
		looked++
	}
	round.Settled = func(quorum.Verdict, quorum.Tally) { look() }
	round.Straggler = func(int, quorum.Ballot[int]) { look() }
	round.Init(3, quorum.Early)
	for node := range 3 { // a mutex held over the calls would block for ever
		round.Cast(node, quorum.Ballot[int]{Vote: quorum.Granted})
	}
	assert.Equal(t, 2, looked)
}

func TestARoundAllocatesItsBallotsAndItsChannelAndNothingElse(t *testing.T) {
	ctx := t.Context()
	var round quorum.Round[int]
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		round = quorum.Round[int]{}
		round.Init(5, quorum.Early)
		for node := range 5 {
			round.Cast(node, quorum.Ballot[int]{Vote: quorum.Granted})
		}
		round.Wait(ctx, nil)
		round.Count()
	}), 2.0)
}

func TestCompleteIsClosedWithTheLastVote(t *testing.T) {
	for asked := range 4 { // the number of votes that are in when Complete is called
		g := newGame(3, quorum.Early)
		var complete <-chan struct{}
		for node := range 3 {
			if node == asked {
				complete = g.Complete()
			}
			g.Cast(node, quorum.Ballot[string]{Vote: quorum.Granted})
			if complete != nil && node < 2 {
				select {
				case <-complete:
					assert.Fail(t, "complete too early", "after %d of 3 votes", node+1)
				default:
				}
			}
		}
		if asked == 3 {
			complete = g.Complete()
		}
		<-complete
	}
}

func TestCompleteIsClosedUnderConcurrentVotes(t *testing.T) {
	for range rounds {
		g := randomGame()
		gate := make(chan struct{})
		var wg sync.WaitGroup
		g.start(&wg, gate)
		wg.Go(func() {
			<-gate
			<-g.Complete()
			_, tally := g.Count()
			assert.Zero(t, tally.Outstanding())
		})
		close(gate)
		wg.Wait()
		g.check(t)
	}
}
