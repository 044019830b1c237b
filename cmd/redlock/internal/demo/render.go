package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redquorum/go-redlock/cmd/redlock/internal/term"
)

// renderer turns what happened into text that fits into 100 columns, with or
// without colour. It writes nothing.
type renderer struct {
	paint  term.Painter
	labels []string // of the contenders
	nodes  int
	kind   string // of the nodes
}

// labelsFor names contenders: a letter for the Locker, a number within it.
func labelsFor(lockers, perLocker int) []string {
	var all []string
	for l := range lockers {
		for i := range perLocker {
			all = append(all, fmt.Sprintf("%c%d", 'A'+l, i+1))
		}
	}
	return all
}

// sliceLength is the time that one row of the timeline stands for.
const sliceLength = 250 * time.Millisecond

func (r renderer) header(o Options, name string) string {
	title := fmt.Sprintf("redlock demo: %d %s nodes, %d contenders, one lock", r.nodes, r.kind, len(r.labels))
	text := fmt.Sprintf(`
%d contenders in %d Lockers, as if in %d processes, all want the lock %q.
It belongs to whoever %d of the %d nodes have granted it to. The holder raises a counter in two
steps, with its work in between, so a second holder would spoil the count.

For %s nodes are killed, hung and restarted, never more than %d at once, and come back with
their data. Every hold is noted on one clock, and the verdict is computed from the notes.
TTL %s, node timeout %s. Ctrl-C ends it early.

A bar is the share of %s for which a contender held the lock.
Nodes: %s up  %s killed  %s hung  %s restarting
`,
		len(r.labels), o.Lockers, o.Lockers, name,
		r.nodes/2+1, r.nodes,
		show(o.Duration), min(minority(r.nodes), 2), show(ttl), show(nodeTimeout),
		show(sliceLength),
		r.node(None), r.node(Killed), r.node(Hung), r.node(Restarting))
	return r.paint.Paint(title, term.Bold) + "\n" + text
}

// cell is the width of a contender's lane.
const cell = 2

func (r renderer) columns() string {
	var b strings.Builder
	b.WriteString("   time ")
	for _, label := range r.labels {
		fmt.Fprintf(&b, " %-*s", cell, label)
	}
	b.WriteString("  ")
	for n := range r.nodes {
		fmt.Fprintf(&b, " %-2d", n+1)
	}
	return r.paint.Paint(strings.TrimRight(b.String(), " "), term.Dim)
}

// row renders a slice: one line, and further ones if there is more to tell.
func (r renderer) row(s slice) string {
	var b strings.Builder
	b.WriteString(r.paint.Paint(fmt.Sprintf("%6.2fs ", s.until.Seconds()), term.Dim))
	for contender := range r.labels {
		share := 0.0
		for _, h := range s.holds {
			if part := min(h.Until, s.until) - max(h.From, s.from); h.Contender == contender && part > 0 {
				share += float64(part) / float64(s.until-s.from)
			}
		}
		b.WriteString(" " + r.paint.Paint(bar(share, cell), colours[contender%len(colours)]))
	}
	b.WriteString("  ")
	for n := range r.nodes {
		fault := None
		for _, o := range s.outages {
			if o.Node == n {
				fault = max(fault, o.Fault)
			}
		}
		b.WriteString(" " + r.node(fault) + " ")
	}
	line := b.String()
	if len(s.events) == 0 {
		return strings.TrimRight(line, " ")
	}
	indent := strings.Repeat(" ", len("  0.00s ")+len(r.labels)*(1+cell)+2+3*r.nodes)
	var lines []string
	for i, e := range s.events {
		if i > 0 {
			line = indent
		}
		lines = append(lines, line+" "+r.event(e))
	}
	return strings.Join(lines, "\n")
}

var colours = []term.Colour{term.Cyan, term.Magenta, term.Blue, term.Green, term.Yellow}

func (r renderer) node(f Fault) string {
	switch f {
	case Killed:
		return r.paint.Paint("×", term.Bold, term.Red)
	case Hung:
		return r.paint.Paint("○", term.Bold, term.Yellow)
	case Restarting:
		return r.paint.Paint("↻", term.Bold, term.Cyan)
	case None:
	}
	return r.paint.Paint("│", term.Green)
}

func (r renderer) event(e event) string {
	switch {
	case e.alarm:
		return r.paint.Paint("HELD TWICE: "+e.text, term.Bold, term.Red)
	case e.fault == Killed:
		return r.paint.Paint(e.text, term.Red)
	case e.fault == Hung:
		return r.paint.Paint(e.text, term.Yellow)
	case e.fault == Restarting:
		return r.paint.Paint(e.text, term.Cyan)
	}
	return r.paint.Paint(e.text, term.Green)
}

// bar fills a part of width columns, in eighths of a column. What is not
// nothing can be seen.
func bar(share float64, width int) string {
	eighths := min(int(share*float64(8*width)+0.5), 8*width)
	if share > 0 {
		eighths = max(eighths, 1)
	}
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text + strings.Repeat(" ", width-utf8.RuneCountInString(text))
}

func (r renderer) summary(h history) string {
	var b strings.Builder
	header := fmt.Sprintf("%-10s %6s %6s %10s   %10s %10s %10s", "contender", "holds", "share", "held for", "mean wait", "median", "longest")
	b.WriteString(r.paint.Paint(header, term.Dim) + "\n")
	line := func(name string, holds int, share float64, heldFor time.Duration, w Waits) {
		fmt.Fprintf(&b, "%-10s %6d %5.0f%% %10s   %10s %10s %10s\n",
			name, holds, 100*share, show(heldFor), show(w.Mean), show(w.Median), show(w.Max))
	}
	total := held(h.holds, -1)
	for contender, name := range r.labels {
		own := held(h.holds, contender)
		line(name, len(h.waits[contender]), ratio(own, total), own, waitsOf(h.waits[contender]))
	}
	all := slices.Concat(h.waits...)
	line("all", len(all), ratio(total, total), total, waitsOf(all))

	fact := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "\n%-16s %s", name, fmt.Sprintf(format, args...))
	}
	fact("lock held", "%.0f %% of %s", 100*ratio(total, h.ended), show(h.ended))
	gap := LongestGap(h.holds, h.ended)
	fact("longest gap", "%s, from %.2f s on, %s",
		show(gap.Length()), gap.From.Seconds(), r.during(During(h.outages, gap)))
	calm, faulty := handOvers(h)
	fact("hand-over", "%s (median) with all nodes up, %s while some were not", show(calm), show(faulty))
	if len(h.failures) == 0 {
		fact("errors", "none")
	}
	sortFailures := func(a, b failure) int {
		return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.kind, b.kind))
	}
	for i, f := range slices.SortedFunc(maps.Keys(h.failures), sortFailures) {
		name := ""
		if i == 0 {
			name = "errors"
		}
		fact(name, "%d × %s: %s", h.failures[f], f.op, f.kind)
	}
	return b.String()
}

func (r renderer) during(outages []Outage) string {
	if len(outages) == 0 {
		return "with all nodes up"
	}
	const most = 2
	var texts []string
	for i, o := range outages {
		if i == most {
			texts = append(texts, fmt.Sprintf("%d more", len(outages)-most))
			break
		}
		texts = append(texts, o.String())
	}
	return "while " + strings.Join(texts, " and ")
}

// verdict states the verdict and what it rests on.
func (r renderer) verdict(v Verdict, left int) string {
	var b strings.Builder
	switch {
	case v.OK():
		b.WriteString(r.paint.Paint("VERDICT: the lock was never held twice", term.Bold, term.Green))
	case v.Holds == 0:
		b.WriteString(r.paint.Paint("VERDICT: none, since nobody ever held the lock", term.Bold, term.Yellow))
	default:
		b.WriteString(r.paint.Paint("VERDICT: THE LOCK WAS HELD TWICE", term.Bold, term.Red))
	}
	fmt.Fprintf(&b, "\n  %s by %s, %s", count(v.Holds, "hold"), count(v.Contenders, "contender"), count(len(v.Overlaps), "overlap"))
	if v.Closest >= 0 {
		fmt.Fprintf(&b, "; the closest two holds were %.3f ms apart", float64(v.Closest)/float64(time.Millisecond))
	}
	sign := "="
	if v.Witness.Counter != v.Witness.Sections {
		sign = "≠"
	}
	fmt.Fprintf(&b, "\n  guarded counter %d %s %s; holders met each other %s",
		v.Witness.Counter, sign, count(v.Witness.Sections, "guarded section"), count(v.Witness.Met, "time"))
	if left >= 0 {
		fmt.Fprintf(&b, "\n  left behind: the lock's key on %s", count(left, "node"))
	}
	const most = 5
	for i, o := range v.Overlaps {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(v.Overlaps)-most)
			break
		}
		fmt.Fprintf(&b, "\n  %s held it from %.6f s to %.6f s, and %s from %.6f s to %.6f s: both for %s",
			r.labels[o.First.Contender], o.First.From.Seconds(), o.First.Until.Seconds(),
			r.labels[o.Second.Contender], o.Second.From.Seconds(), o.Second.Until.Seconds(), show(o.Until-o.From))
	}
	return b.String()
}

func count(n int, what string) string {
	switch n {
	case 0:
		return "0 " + what + "s"
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// show gives a duration three digits or so.
func show(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond)/time.Millisecond)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
