package quorum_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/quorum"
)

var (
	rules = map[string]quorum.Rule{"early": quorum.Early, "certain": quorum.Certain}
	votes = map[string]quorum.Vote{"granted": quorum.Granted, "refused": quorum.Refused, "failed": quorum.Failed, "unknown": quorum.Unknown}

	voteNames = map[quorum.Vote]string{
		quorum.Pending: "pending",
		quorum.Granted: "granted",
		quorum.Refused: "refused",
		quorum.Failed:  "failed",
		quorum.Unknown: "unknown",
	}
	verdictNames = map[quorum.Verdict]string{quorum.Undecided: "undecided", quorum.Won: "won", quorum.Lost: "lost"}
)

// The files in testdata tell stories: prose in lines that begin with #, then
// one round with what must come of each step, after the arrow.
//
//	round <name> nodes=<n> rule=<early|certain>   begins a scenario
//	cast <node> <vote>    => the verdict so far; "settles" if this vote made it,
//	                         "straggler" if it came too late
//	wait                  => what Wait returns; only once there is a verdict
//	give up               => what Wait returns when its context is cancelled
//	stop                  => what Wait returns when stop is closed
//	ballots               => each node's vote, in the order of the nodes
//	why                   => denied, unheard, both, or neither
func TestTheScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for _, s := range readScenarios(t, file) {
				t.Run(s.name, s.run)
			}
		})
	}
}

// A scenario is one round of a file.
type scenario struct {
	name  string
	nodes int
	rule  quorum.Rule
	steps []step
}

type step struct {
	at      string // file:line
	command []string
	want    string
}

func readScenarios(t *testing.T, file string) []scenario {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var all []scenario
	prose := false
	for i, line := range strings.Split(string(text), "\n") {
		at := fmt.Sprintf("%s:%d", file, i+1)
		switch line = strings.TrimSpace(line); {
		case line == "":
		case strings.HasPrefix(line, "#"):
			prose = true
		case strings.HasPrefix(line, "round "):
			require.True(t, prose, "%s: a scenario without a word of prose above it", at)
			prose = false
			all = append(all, newScenario(t, at, strings.Fields(line)[1:]))
		default:
			command, want, ok := strings.Cut(line, "=>")
			require.True(t, ok, "%s: no arrow in %q", at, line)
			require.NotEmpty(t, all, "%s: a step before the first round", at)
			s := &all[len(all)-1]
			s.steps = append(s.steps, step{at, strings.Fields(command), strings.TrimSpace(want)})
		}
	}
	require.NotEmpty(t, all, "%s: no scenario", file)
	return all
}

func newScenario(t *testing.T, at string, fields []string) scenario {
	t.Helper()
	require.Len(t, fields, 3, "%s: want: round <name> nodes=<n> rule=<rule>", at)
	nodes, err := strconv.Atoi(strings.TrimPrefix(fields[1], "nodes="))
	require.NoError(t, err, at)
	rule := rules[strings.TrimPrefix(fields[2], "rule=")]
	require.NotNil(t, rule, "%s: no such rule", at)
	return scenario{name: fields[0], nodes: nodes, rule: rule}
}

func (s scenario) run(t *testing.T) {
	var events []string
	var round quorum.Round[string]
	round.Settled = func(verdict quorum.Verdict, tally quorum.Tally) {
		require.Equal(t, verdict, s.rule(tally))
		events = append(events, "settles")
	}
	round.Straggler = func(node int, ballot quorum.Ballot[string]) {
		require.Equal(t, strconv.Itoa(node), ballot.Reply, "somebody else's ballot")
		events = append(events, "straggler")
	}
	round.Init(s.nodes, s.rule)

	for _, step := range s.steps {
		events = nil
		var got string
		switch command := strings.Join(step.command, " "); {
		case step.command[0] == "cast" && len(step.command) == 3:
			node, err := strconv.Atoi(step.command[1])
			require.NoError(t, err, step.at)
			vote, ok := votes[step.command[2]]
			require.True(t, ok, "%s: no such vote", step.at)
			round.Cast(node, quorum.Ballot[string]{Vote: vote, Reply: strconv.Itoa(node)})
			verdict, _ := round.Count()
			got = strings.Join(append([]string{verdictNames[verdict]}, events...), ", ")
		case command == "wait":
			verdict, _ := round.Count()
			require.NotEqual(t, quorum.Undecided, verdict, "%s: would wait for ever", step.at)
			got = verdictNames[round.Wait(t.Context(), nil)]
		case command == "give up":
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			got = verdictNames[round.Wait(ctx, nil)]
		case command == "stop":
			stop := make(chan struct{})
			close(stop)
			got = verdictNames[round.Wait(t.Context(), stop)]
		case command == "ballots":
			var all []string
			for _, ballot := range round.Ballots() {
				all = append(all, voteNames[ballot.Vote])
			}
			got = strings.Join(all, " ")
		case command == "why":
			_, tally := round.Count()
			got = why(tally)
		default:
			require.Fail(t, "no such step", "%s: %s", step.at, command)
		}
		require.Equal(t, step.want, got, "%s: %s", step.at, strings.Join(step.command, " "))
	}
}

func why(t quorum.Tally) string {
	switch {
	case t.Denied() && t.Unheard():
		return "both"
	case t.Denied():
		return "denied"
	case t.Unheard():
		return "unheard"
	}
	return "neither"
}
