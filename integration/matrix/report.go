package matrix

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/integration/nodes"
)

// Explain says what is wrong with a red cell, and how to try it again.
func Explain(r *Result) string {
	e := r.Want
	var b strings.Builder
	fmt.Fprintf(&b, "red: %s | %s | %d of %d nodes\n", e.Fault, e.Operation, e.Hit, Size)
	fmt.Fprintf(&b, "\texpected %s, saw %s after %v: %v\n", e.Text, r.Got, r.Took.Round(time.Millisecond), r.Err)
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "\t- %s\n", p)
	}
	fmt.Fprintf(&b, "\tagain: cd integration && go test ./matrix -count=1 -run '^TestFaultMatrix$' -v -args -fault '%s' -op '%s' -hit %d",
		regexp.QuoteMeta(e.Fault), e.Operation, e.Hit)
	return b.String()
}

// A Report collects what was seen, for people to read.
type Report struct {
	began   time.Time
	backend string
	server  string
	modules string
	faults  []*Fault
	results map[*Fault][]*Result
}

// NewReport begins a report.
func NewReport(tb testing.TB, m *Matrix, began time.Time) *Report {
	tb.Helper()
	backend, err := nodes.Describe()
	if err != nil {
		tb.Error(err)
	}
	r := &Report{began: began, backend: backend, modules: modules(tb.Context()), results: map[*Fault][]*Result{}}
	for _, c := range m.clusters {
		info, err := redis.String(c.Node(0).Do("INFO", "server"))
		if err != nil {
			tb.Error(err)
		}
		r.server = "Redis " + field(info, "redis_version")
		break
	}
	return r
}

// field finds a value in the reply of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return "?"
}

// Add takes the results of a round.
func (r *Report) Add(f *Fault, results []*Result) {
	r.faults = append(r.faults, f)
	r.results[f] = results
}

// Summary is one line.
func (r *Report) Summary() string {
	var green, red, notHad int
	for _, f := range r.faults {
		for _, result := range r.results[f] {
			switch {
			case result.Red():
				red++
			case result.Green():
				green++
			default:
				notHad++
			}
		}
	}
	return fmt.Sprintf("fault matrix: %d cells green, %d red, %d not to be had here, in %v",
		green, red, notHad, time.Since(r.began).Round(time.Second))
}

// Markdown is the whole matrix.
func (r *Report) Markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	kind, _, _ := strings.Cut(strings.TrimPrefix(r.backend, "integration backend: "), " ")
	p("## Nodes of kind %s", kind)
	p("")
	p("%s.", strings.Replace(r.Summary(), "fault matrix: ", "", 1))
	p("")
	p("- date: %s", r.began.UTC().Format("2006-01-02 15:04 MST"))
	p("- %s", r.backend)
	p("- server: %s; client: %s on %s/%s, %d CPUs", r.server, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if r.modules != "" {
		p("- %s", r.modules)
	}
	p("")
	for _, f := range r.faults {
		p("### %s", f.Name)
		p("")
		p("%s.", f.How)
		p("")
		r.table(p, r.results[f])
		p("")
	}
	return b.String()
}

// table prints the cells of one fault.
func (r *Report) table(p func(string, ...any), results []*Result) {
	cells := map[int]map[string]*Result{}
	for _, result := range results {
		e := result.Want
		if cells[e.Hit] == nil {
			cells[e.Hit] = map[string]*Result{}
		}
		cells[e.Hit][e.Operation] = result
	}
	p("| nodes | %s |", strings.Join(Operations, " | "))
	p("|---|%s", strings.Repeat("---|", len(Operations)))
	for _, hit := range Hits {
		if cells[hit] == nil {
			continue
		}
		row := []string{hits[hit]}
		for _, op := range Operations {
			row = append(row, cell(cells[hit][op]))
		}
		p("| %s |", strings.Join(row, " | "))
	}
	for _, result := range results {
		if result.NotHad != "" {
			p("")
			p("n/a: %s.", result.NotHad)
			break
		}
	}
	for _, result := range results {
		if result.Red() {
			p("")
			p("```text\n%s\n```", Explain(result))
		}
	}
}

// hits are the numbers of nodes in words.
var hits = map[int]string{0: "none", 1: "a minority (1)", 2: "half minus one (2)", 3: "a majority (3)"}

// cell is one cell: what was expected, what was seen and after how long.
func cell(r *Result) string {
	switch {
	case r == nil:
		return ""
	case r.NotHad != "":
		return "n/a"
	}
	mark := "✓"
	if r.Red() {
		mark = "**✗**"
	}
	want := strings.ReplaceAll(r.Want.Text, "|", "/")
	seen := string(r.Got)
	if want == seen {
		return fmt.Sprintf("%s %s, %s", mark, seen, brief(r.Took))
	}
	return fmt.Sprintf("%s %s (expected: %s), %s", mark, seen, want, brief(r.Took))
}

func brief(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// modules are the versions of what the cells depend on, and of what was tried. Without the go command or git, there is
// less to say.
func modules(ctx context.Context) string {
	var all []string
	say := func(name string, args ...string) {
		if out, err := exec.CommandContext(ctx, name, args...).Output(); err == nil {
			all = append(all, strings.Split(strings.TrimSpace(string(out)), "\n")...)
		}
	}
	say("git", "log", "-1", "--format=go-redlock after commit %h")
	say("go", "list", "-m", "github.com/gomodule/redigo", "github.com/Shopify/toxiproxy/v2", "github.com/testcontainers/testcontainers-go")
	return strings.Join(all, ", ")
}
