package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"
)

func show(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	case d >= 100*time.Microsecond:
		return fmt.Sprintf("%.0f µs", d.Seconds()*1e6)
	default:
		return fmt.Sprintf("%.1f µs", d.Seconds()*1e6)
	}
}

func ratio(r float64) string {
	switch {
	case math.IsNaN(r) || math.IsInf(r, 0):
		return "–"
	case r >= 100:
		return fmt.Sprintf("%.0f×", r)
	case r >= 10:
		return fmt.Sprintf("%.1f×", r)
	default:
		return fmt.Sprintf("%.2f×", r)
	}
}

func oneLine(err error) string {
	if err == nil {
		return ""
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 160 {
		text = text[:160] + "…"
	}
	return text
}

// An outcome is a row with its results, or with the reason why it has none.
type outcome struct {
	row     *row
	results []*result
}

func (o *outcome) of(subject string) *result {
	for _, r := range o.results {
		if r.subject == subject {
			return r
		}
	}
	return nil
}

// base is whom the others of a row are compared with.
func (o *outcome) base() *result { return o.results[0] }

// A report is everything that a run showed.
type report struct {
	heading  []string // about machine and versions
	outcomes []*outcome
	figures  []figure
	skipped  []string
}

func (r *report) markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, h := range r.heading {
		line("%s", h)
	}
	if len(r.outcomes) > 0 {
		line("\n## Pairs of acquire and release\n")
		line("| case | subject | time per op | ratio to the first | allocs per op | failed |")
		line("|---|---|--:|--:|--:|--:|")
	}
	for _, o := range r.outcomes {
		for i, res := range o.results {
			title, times := "", ratio(res.over(o.base()))
			if i == 0 {
				title = o.row.title
				if o.row.unit != "pair" {
					title += " (" + o.row.unit + ")"
				}
				if o.row.note != "" {
					title += " (" + o.row.note + ")"
				}
				times = "1"
			}
			failed := ""
			if res.failures > 0 {
				failed = fmt.Sprintf("%d of %d", res.failures, res.failures+res.ops)
			}
			line("| %s | %s | %s | %s | %.0f | %s |", title, res.subject, show(res.median()), times, res.allocs, failed)
		}
	}
	if len(r.figures) > 0 {
		line("\n## Waiting, and what is left behind\n")
		line("| measure | go-redlock | redsync | redsync / ours | |")
		line("|---|--:|--:|--:|---|")
	}
	for _, f := range r.figures {
		line("| %s | %s | %s | %s | %s |", f.title, f.ours, f.theirs, f.ratio, f.note)
	}
	if targets := r.targets(); len(targets) > 0 {
		line("\n## Targets\n")
		line("| target | this run | |")
		line("|---|--:|---|")
		for _, t := range targets {
			met := "met"
			if !t.met {
				met = "**missed**"
			}
			if t.note != "" {
				met += ", " + t.note
			}
			line("| %s | %s | %s |", t.text, t.seen, met)
		}
	}
	if len(r.skipped) > 0 {
		line("\nLeft out:\n")
		for _, s := range r.skipped {
			line("- %s", s)
		}
	}
	return b.String()
}

type target struct {
	text, seen string
	met        bool
	note       string
}

// targets judges what was measured; of rows that were not, it says nothing.
func (r *report) targets() (targets []target) {
	find := func(key string) *outcome {
		for _, o := range r.outcomes {
			if o.row.key == key {
				return o
			}
		}
		return nil
	}
	// ratioOf adds a target on the ratio of two subjects of a row.
	ratioOf := func(text, key, subject, base string, met func(float64) bool) {
		o := find(key)
		if o == nil || o.of(subject) == nil || o.of(base) == nil {
			return
		}
		v := o.of(subject).over(o.of(base))
		t := target{text: text, seen: ratio(v), met: met(v)}
		// What the same commands miss with nothing around them is out of reach.
		if floor := o.of(nameFloor); !t.met && base == nameOurs && floor != nil {
			if v := o.of(subject).over(floor); !met(v) {
				t.note = "and by the floor, too: " + ratio(v)
			}
		}
		targets = append(targets, t)
	}
	atLeast := func(least float64) func(float64) bool { return func(v float64) bool { return v >= least } }
	atMost := func(most float64) func(float64) bool { return func(v float64) bool { return v <= most } }
	ratioOf("1 goroutine: redsync ≥ 2.5× our time", "pair-1", nameRedsync, nameOurs, atLeast(2.5))
	ratioOf("1 goroutine: redsync fail-fast ≥ 1.3×", "pair-1", nameFailFast, nameOurs, atLeast(1.3))
	ratioOf("64 goroutines: redsync ≥ 4.5×", "pair-64", nameRedsync, nameOurs, atLeast(4.5))
	ratioOf("512 goroutines: redsync ≥ 6×", "pair-512", nameRedsync, nameOurs, atLeast(6))
	for _, g := range []string{"1", "64", "512"} {
		ratioOf(g+" goroutine(s): we ≤ 1.15× the floor (one loop)", "pair-"+g, nameOurs, nameFloor, atMost(1.15))
		ratioOf(g+" goroutine(s): we ≤ 1.15× the floor with as many goroutines", "pair-"+g, nameOurs, nameFloorEach, atMost(1.15))
		if o := find("pair-" + g); o != nil {
			a := o.base().allocs
			targets = append(targets, target{text: g + " goroutine(s): ≤ 40 allocations a pair", seen: fmt.Sprintf("%.1f", a), met: a <= 40})
		}
	}
	for _, h := range []string{"1", "2"} {
		ratioOf(h+" of 5 hung: ≤ 1.2× healthy", "hung-"+h, nameOurs, nameHealthy, atMost(1.2))
		ratioOf(h+" of 5 hung, 64 goroutines: ≤ 1.2× healthy", "hung-"+h+"-64", nameOurs, nameHealthy, atMost(1.2))
		ratioOf(h+" of 5 hung, first pair: ≤ 1.2× healthy", "hung-"+h+"-first", nameOurs, nameHealthy, atMost(1.2))
	}
	ratioOf("64 goroutines: redislock on 1 node > 1× our time on 5", "pair-64", nameBSM, nameOurs, func(v float64) bool { return v > 1 })
	for _, f := range r.figures {
		switch f.key {
		case "hand-off-median":
			targets = append(targets, target{text: "hand-off, median ≤ 2 ms", seen: f.ours, met: f.value <= 0.002})
		case "hand-off-p99":
			targets = append(targets, target{text: "hand-off, p99 ≤ 10 ms", seen: f.ours, met: f.value <= 0.010})
		}
	}
	return targets
}

// svg draws a bar for each subject of the rows about pairs: its time per pair as a multiple of ours, on a logarithmic
// axis, as a hung node makes a difference of three orders of magnitude.
func (r *report) svg() string {
	const (
		left, width  = 170, 640 // of the plot
		bar, gap     = 16, 26
		smallest     = 0.1
		orders       = 5 // 0.1 … 10000
		right        = 150
		headline     = 64
		perOrder     = float64(width) / orders
		fontSize     = 12
		titleSize    = 14
		labelPadding = 5
	)
	x := func(v float64) float64 {
		return left + perOrder*math.Log10(min(max(v, smallest), smallest*math.Pow10(orders))/smallest)
	}
	escape := func(s string) string {
		var b strings.Builder
		if xml.EscapeText(&b, []byte(s)) != nil {
			return "" // a strings.Builder takes everything
		}
		return b.String()
	}
	color := func(subject string) string {
		switch subject {
		case nameOurs, nameOursTenAll:
			return "#2e7d4f"
		case nameFloor, nameFloorEach, nameHealthy, nameFencing, nameOneByOne:
			return "#9aa5b1"
		case nameBSM:
			return "#c48a1c"
		default:
			return "#3f6fb5"
		}
	}
	var body strings.Builder
	y := headline
	for _, o := range r.outcomes {
		y += gap
		fmt.Fprintf(&body, `<text x="%d" y="%d" font-size="%d" font-weight="600">%s</text>`+"\n", labelPadding, y-labelPadding, fontSize, escape(o.row.title))
		for _, res := range o.results {
			v := res.over(o.base())
			from, to := x(1), x(v)
			if to < from {
				from, to = to, from
			}
			fmt.Fprintf(&body, `<text x="%d" y="%d" font-size="%d" text-anchor="end">%s</text>`+"\n", left-labelPadding, y+fontSize, fontSize-1, escape(res.subject))
			fmt.Fprintf(&body, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", from, y+2, max(2, to-from), bar-3, color(res.subject))
			fmt.Fprintf(&body, `<text x="%.1f" y="%d" font-size="%d">%s</text>`+"\n", to+labelPadding, y+fontSize, fontSize-1,
				escape(fmt.Sprintf("%s (%s)", ratio(v), show(res.median()))))
			y += bar
		}
	}
	var axis strings.Builder
	for i := range orders + 1 {
		v := smallest * math.Pow10(i)
		fmt.Fprintf(&axis, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#d5dae0"/>`+"\n", x(v), headline-4, x(v), y)
		fmt.Fprintf(&axis, `<text x="%.1f" y="%d" font-size="%d" text-anchor="middle" fill="#5b6673">%g×</text>`+"\n", x(v), headline-8, fontSize-1, v)
	}
	total := left + width + right
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif">`+"\n",
		total, y+gap, total, y+gap) +
		fmt.Sprintf(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", total, y+gap) +
		fmt.Sprintf(`<text x="%d" y="24" font-size="%d" font-weight="700">Time per acquire and release, as a multiple of the first of each group (less is better)</text>`+"\n", labelPadding, titleSize) +
		axis.String() + body.String() + "</svg>\n"
}
