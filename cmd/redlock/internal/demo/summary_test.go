package demo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/demo"
	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
	"github.com/redquorum/go-redlock/redlock"
)

const ms = time.Millisecond

func TestLongestGapIsFoundWhereverItIs(t *testing.T) {
	for name, test := range map[string]struct {
		holds []demo.Hold
		want  demo.Gap
	}{
		"nobody ever held it": {nil, demo.Gap{Until: 100}},
		"at the beginning":    {[]demo.Hold{hold(0, 50, 80), hold(1, 90, 99)}, demo.Gap{Until: 50}},
		"in between":          {[]demo.Hold{hold(0, 1, 20), hold(1, 60, 99)}, demo.Gap{From: 20, Until: 60}},
		"at the end":          {[]demo.Hold{hold(0, 1, 20), hold(1, 21, 40)}, demo.Gap{From: 40, Until: 100}},
		"held past the end":   {[]demo.Hold{hold(0, 1, 20), hold(1, 23, 140)}, demo.Gap{From: 20, Until: 23}},
		"held all the time":   {[]demo.Hold{hold(0, 0, 100)}, demo.Gap{}},
		"behind a long hold":  {[]demo.Hold{hold(0, 0, 70), hold(1, 10, 20), hold(2, 80, 100)}, demo.Gap{From: 70, Until: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, demo.LongestGap(test.holds, 100))
		})
	}
}

func TestGapIsBlamedOnTheOutagesDuringIt(t *testing.T) {
	killed := demo.Outage{Node: 1, Fault: demo.Killed, From: 10, Until: 40}
	hung := demo.Outage{Node: 3, Fault: demo.Hung, From: 30, Until: 60}
	both := []demo.Outage{killed, hung}
	assert.Empty(t, demo.During(both, demo.Gap{From: 0, Until: 10}))
	assert.Equal(t, []demo.Outage{killed}, demo.During(both, demo.Gap{From: 5, Until: 11}))
	assert.Equal(t, both, demo.During(both, demo.Gap{From: 35, Until: 36}))
	assert.Equal(t, []demo.Outage{hung}, demo.During(both, demo.Gap{From: 40, Until: 99}))
	assert.Empty(t, demo.During(both, demo.Gap{From: 60, Until: 99}))
}

func TestWaitsAreSummedUp(t *testing.T) {
	assert.Equal(t, demo.Waits{}, demo.WaitsOf(nil))
	assert.Equal(t, demo.Waits{Mean: 4 * ms, Median: 2 * ms, Max: 9 * ms},
		demo.WaitsOf([]time.Duration{9 * ms, 1 * ms, 2 * ms}))
}

func TestBarShowsShares(t *testing.T) {
	for share, want := range map[float64]string{
		0: "  ", 0.001: "▏ ", 0.25: "▌ ", 0.5: "█ ", 0.75: "█▌", 0.97: "██", 1: "██", 1.5: "██",
	} {
		assert.Equal(t, want, demo.Bar(share, 2), "%v", share)
	}
}

func TestRowShowsHoldersNodesAndEvents(t *testing.T) {
	labels := demo.LabelsFor(2, 2)
	require.Equal(t, []string{"A1", "A2", "B1", "B2"}, labels)
	holds := []demo.Hold{
		hold(0, 900*ms, 1125*ms),     // half of it in this slice
		hold(2, 1130*ms, 1131*ms),    // hardly to be seen
		hold(3, 1187500*1000, 2*1e9), // goes on
		hold(1, 0, 1000*ms),          // before
		hold(1, 1250*ms, 1300*ms),    // after
	}
	outages := []demo.Outage{
		{Node: 0, Fault: demo.Killed, From: 0, Until: 5 * time.Second},
		{Node: 1, Fault: demo.Hung, From: 0, Until: 5 * time.Second},
		{Node: 1, Fault: demo.Restarting, From: 1100 * ms, Until: 1150 * ms},
	}
	row := func(p term.Painter) string {
		return demo.Row(p, labels, 3, time.Second, 1250*ms, holds, outages, "first thing", "second thing")
	}
	assert.Equal(t, ""+
		"  1.25s  █     ▏  ▌    ×  ○  │  first thing\n"+
		"                                second thing", row(term.Painter{}))
	assert.Equal(t, row(term.Painter{}), stripped(row(term.Coloured())))
	assert.NotEqual(t, row(term.Painter{}), row(term.Coloured()))

	quiet := demo.Row(term.Painter{}, labels, 3, 0, 250*ms, nil, nil)
	assert.Equal(t, "  0.25s                │  │  │", quiet)
	// Headings stand above their lanes.
	columns := demo.Columns(labels, 3)
	assert.Equal(t, "   time  A1 A2 B1 B2   1  2  3", columns)
	assert.Equal(t, utf8.RuneCountInString(columns), utf8.RuneCountInString(quiet))
}

func stripped(s string) string {
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(s, "\x1b[")
		b.WriteString(plain)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(rest, "m")
	}
}

func TestSummarySaysHowItWent(t *testing.T) {
	text := demo.Summary(demo.LabelsFor(1, 2), 2*time.Second,
		[]demo.Hold{hold(0, 100*ms, 600*ms), hold(1, 900*ms, 1900*ms)},
		[][]time.Duration{{90 * ms}, {300 * ms}},
		[]demo.Outage{{Node: 3, Fault: demo.Hung, From: 500 * ms, Until: 700 * ms}},
		map[string]int{"no quorum of nodes": 2})
	for _, want := range []string{
		"A1              1    33%     500 ms        90 ms      90 ms      90 ms\n",
		"A2              1    67%        1 s       300 ms     300 ms     300 ms\n",
		"all             2   100%     1.50 s       195 ms     300 ms     300 ms\n",
		"lock held        75 % of 2 s\n",
		"longest gap      300 ms, from 0.60 s on, while node 4 was hung\n",
		"errors           2 × acquire: no quorum of nodes",
	} {
		assert.Contains(t, text, want)
	}
}

func TestVerdictComesWithItsEvidence(t *testing.T) {
	labels := demo.LabelsFor(4, 1)
	evidence := func(v demo.Verdict, left int) string { return demo.Evidence(term.Painter{}, labels, v, left) }

	assert.Equal(t, `VERDICT: the lock was never held twice
  2 holds by 2 contenders, 0 overlaps; the closest two holds were 0.210 ms apart
  guarded counter 2 = 2 guarded sections; holders met each other 0 times
  left behind: the lock's key on 0 nodes`,
		evidence(demo.Judge([]demo.Hold{hold(0, 0, ms), hold(1, 1210*time.Microsecond, 2*ms)}, agreed(2)), 0))

	twice := demo.Judge([]demo.Hold{hold(0, 0, 3*ms), hold(1, ms, 2*ms)}, demo.Witness{Sections: 2, Counter: 1, Met: 1})
	assert.Equal(t, `VERDICT: THE LOCK WAS HELD TWICE
  2 holds by 2 contenders, 1 overlap
  guarded counter 1 ≠ 2 guarded sections; holders met each other 1 time
  A1 held it from 0.000000 s to 0.003000 s, and B1 from 0.001000 s to 0.002000 s: both for 1.00 ms`,
		evidence(twice, -1))

	var many []demo.Hold
	for i := range 4 {
		many = append(many, hold(i, 0, ms))
	}
	assert.Contains(t, evidence(demo.Judge(many, agreed(4)), 0), "and 1 more")
	assert.Contains(t, evidence(demo.Judge(nil, agreed(0)), 0), "VERDICT: none")
}

func TestDurationsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-", 1234 * time.Nanosecond: "0.00 ms", 1234 * time.Microsecond: "1.23 ms", 17*ms + 600_000: "18 ms",
		250 * ms: "250 ms", time.Second: "1 s", 1234 * ms: "1.23 s", 10 * time.Second: "10 s",
	} {
		assert.Equal(t, want, demo.Show(d))
	}
}

func TestErrorsAreCountedByKind(t *testing.T) {
	failed := errors.New("connection refused")
	err := &redlock.QuorumError{Op: "acquire", Nodes: []redlock.NodeError{
		{Op: "acquire", Addr: "b:1"},
		{Op: "acquire", Addr: "a:1", Err: fmt.Errorf("node is suspect: %w", failed)},
	}}
	assert.Equal(t, []string{"a:1: connection refused"}, demo.Kinds(err)[1:])
	assert.Equal(t, []string{"no quorum of nodes"}, demo.Kinds(fmt.Errorf("so: %w", redlock.ErrNoQuorum)))
	assert.Equal(t, []string{"lock lost"}, demo.Kinds(redlock.ErrLost))
	assert.Equal(t, []string{"gave up after 3s"}, demo.Kinds(errors.Join(redlock.ErrTaken, context.DeadlineExceeded)))
	assert.Equal(t, []string{"something new"}, demo.Kinds(errors.New("something new")))
}
