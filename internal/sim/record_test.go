package sim_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// A record is what happened in a history, and what was wrong with it.
type record struct {
	seed   uint64
	title  string
	origin time.Time

	mu        sync.Mutex // guards what follows; nodes call with their mutexes held
	events    []event
	violation string
	counts    counts
}

func newRecord(seed uint64) record {
	return record{seed: seed, origin: time.Now(), counts: counts{"histories": 1}}
}

// counts says how often things happened, to show that a run was not about
// nothing.
type counts map[string]int

func (c counts) add(other counts) {
	for what, n := range other {
		c[what] += n
	}
}

func (c counts) String() string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		all = append(all, fmt.Sprintf("%s %d", what, c[what]))
	}
	return strings.Join(all, ", ")
}

// An event is rendered only if somebody wants to read it.
type event struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

func (e event) text() string { return fmt.Sprintf(e.format, e.args...) }

// violation is who tells of violations.
const violation = "VIOLATION"

func (r *record) log(who, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logLocked(who, format, args...)
}

func (r *record) logLocked(who, format string, args ...any) {
	r.events = append(r.events, event{time.Since(r.origin), who, format, args})
}

func (r *record) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

func (r *record) violated(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violatedLocked(format, args...)
}

func (r *record) violatedLocked(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	r.logLocked(violation, "%s", what)
	if r.violation == "" {
		r.violation = what
	}
}

// only forgets the violations of other kinds.
func (r *record) only(kind *regexp.Regexp) *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violation = ""
	for _, e := range r.events {
		if text := e.text(); e.who == violation && r.violation == "" && kind.MatchString(text) {
			r.violation = text
		}
	}
	return r
}

// logScriptLocked notes what a node has executed.
func (r *record) logScriptLocked(node, client int, script *scripts.Script, keys, args []string, reply any) {
	r.logLocked("node", "%d, for client %d: %s %v %v: %v", node+1, client+1, script.Name(), keys, tokenFirst(args), reply)
}

// String returns the history for people to read.
func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.WriteString(r.title)
	for _, e := range r.events {
		fmt.Fprintf(&b, "\n%14v  %-9s %s", e.at, e.who, e.text())
	}
	return b.String()
}

// tokenFirst shows the arguments of a script.
type tokenFirst []string

func (a tokenFirst) String() string {
	return strings.Join(append([]string{short(a[0])}, a[1:]...), " ")
}

// short is enough of a token to recognise it.
func short(token string) string { return token[:min(4, len(token))] }

type outcome struct{ err error }

func (o outcome) String() string {
	if o.err == nil {
		return "done"
	}
	return o.err.Error()
}
