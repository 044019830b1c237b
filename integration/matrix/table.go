package matrix

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed table.txt
var table string

// Size is the number of nodes of a cluster, and Hits are the numbers of them that have the fault: none, a minority,
// half minus one, a majority.
const Size = 5

// Hits are the numbers of nodes that have a fault.
var Hits = []int{0, 1, 2, 3}

// Outcome is what an operation comes to, in the words of table.txt.
type Outcome string

// The outcomes. Unexplained is what no cell expects: an error that is none of the others, or two of them.
const (
	OK          Outcome = "ok"
	Taken       Outcome = "taken"
	NoQuorum    Outcome = "no-quorum"
	Lost        Outcome = "lost"
	Expires     Outcome = "expires"
	GivesUp     Outcome = "gives-up"
	Unexplained Outcome = "unexplained"
)

var outcomes = []Outcome{OK, Taken, NoQuorum, Lost, Expires, GivesUp}

// Expectation is one cell of the table.
type Expectation struct {
	Fault     string
	Hit       int // nodes that have the fault
	Operation string

	Text   string        // as the table has it
	Under  []Outcome     // under the fault: one of them
	Healed Outcome       // of a renewal once the nodes are well
	Within time.Duration // 0: the operation has a bound of its own
	Cause  []string      // what the error of each node that has the fault contains: one of them; none: no node fails
	Known  string        // what it contains once the library knows the fault; empty: any of the causes
}

// Allows reports whether the outcome is among those expected under the fault.
func (e Expectation) Allows(o Outcome) bool { return slices.Contains(e.Under, o) }

// The names of the operations, in the order of the table's columns.
const (
	acquire   = "acquire"
	renew     = "renew"
	release   = "release"
	waiting   = "waiting"
	autoRenew = "auto-renew"
)

// Operations are the names of the operations.
var Operations = []string{acquire, renew, release, waiting, autoRenew}

// columns splits a line of the table. Only the fault, at the beginning, and the cause, at the end, have spaces.
var columns = regexp.MustCompile(`^(\S.*?)\s+(\d)(?:-(\d))?\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S.*)$`)

// Table returns the cells that table.txt describes.
func Table() ([]Expectation, error) { return parse(table) }

func parse(text string) ([]Expectation, error) {
	var cells []Expectation
	seen := map[string]bool{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || strings.HasPrefix(line, "fault ") {
			continue
		}
		row, err := parseRow(line)
		if err != nil {
			return nil, fmt.Errorf("table.txt:%d: %w: %s", number, err, line)
		}
		for _, e := range row {
			id := fmt.Sprint(e.Fault, e.Hit, e.Operation)
			if seen[id] {
				return nil, fmt.Errorf("table.txt:%d: a second expectation for %s on %d nodes", number, e.Fault, e.Hit)
			}
			seen[id] = true
			cells = append(cells, e)
		}
	}
	return cells, nil
}

// parseRow returns the cells of one line.
func parseRow(line string) ([]Expectation, error) {
	m := columns.FindStringSubmatch(line)
	if m == nil {
		return nil, fmt.Errorf("want fault, nodes, %s, two durations and a cause", strings.Join(Operations, ", "))
	}
	first := int(m[2][0] - '0')
	last := first
	if m[3] != "" {
		last = int(m[3][0] - '0')
	}
	within, err := time.ParseDuration(m[9])
	if err != nil {
		return nil, err
	}
	waits, err := time.ParseDuration(m[10])
	if err != nil {
		return nil, err
	}
	var cells []Expectation
	for hit := first; hit <= last; hit++ {
		for i, op := range Operations {
			e := Expectation{Fault: m[1], Hit: hit, Operation: op, Text: m[4+i], Within: within}
			switch op {
			case waiting:
				e.Within = waits
			case autoRenew:
				e.Within = 0
			}
			if m[11] != "-" {
				e.causes(m[11])
			}
			if err := e.expect(m[4+i]); err != nil {
				return nil, err
			}
			cells = append(cells, e)
		}
	}
	return cells, nil
}

// causes reads what the errors of nodes show.
func (e *Expectation) causes(text string) {
	for cause := range strings.SplitSeq(text, "|") {
		cause, known := strings.CutSuffix(cause, "!")
		if known {
			e.Known = cause
		}
		e.Cause = append(e.Cause, cause)
	}
}

// expect reads what is expected.
func (e *Expectation) expect(text string) error {
	under, healed, told := strings.Cut(text, ">")
	for word := range strings.SplitSeq(under, "|") {
		o := Outcome(word)
		if !slices.Contains(outcomes, o) {
			return fmt.Errorf("%q is no outcome", word)
		}
		e.Under = append(e.Under, o)
	}
	switch {
	case told:
		e.Healed = Outcome(healed)
	case slices.Contains(e.Under, Lost):
		e.Healed = Lost
	default:
		e.Healed = OK
	}
	if !slices.Contains(outcomes, e.Healed) {
		return fmt.Errorf("%q is no outcome", healed)
	}
	return nil
}
