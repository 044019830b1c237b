package redlock

import "fmt"

// Level says how much a finding matters.
type Level uint8

// The levels.
const (
	LevelOK      Level = iota // as it should be
	LevelInfo                 // good to know: something is not there, or could not be looked at
	LevelWarning              // a fault away from trouble: locks suffer when something else fails, too
	LevelError                // in trouble: locks cannot be had, or exclusion is in danger without any fault
)

func (l Level) String() string {
	return word(l, "ok", "info", "warning", "error")
}

// MarshalText encodes the level as its name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is the outcome of one check of one node.
type Finding struct {
	Level Level  // how bad it is
	Node  string // its address, without secrets; empty if it is about all of them, or this machine
	// What names the check: a short word that stays the same, for programs. The
	// words are listed at [Locker.Check].
	What string
	Seen string // what was found, in one line
	// What it endangers, and how to mend it. Empty at LevelOK.
	Endangers, Mend string
}

// String returns one line.
func (f Finding) String() string {
	text := fmt.Sprintf("%v: %s: %s", f.Level, f.What, f.Seen)
	if f.Node != "" {
		text = f.Node + ": " + text
	}
	if f.Endangers != "" {
		text += "; endangers " + f.Endangers
	}
	if f.Mend != "" {
		text += "; to mend it, " + f.Mend
	}
	return text
}

// Report is everything that [Locker.Check] found, good and bad.
type Report struct {
	Findings []Finding // node by node, in the order of the addresses; then what is about all
}

// Worst returns the highest level among the findings.
func (r *Report) Worst() Level {
	worst := LevelOK
	for i := range r.Findings {
		worst = max(worst, r.Findings[i].Level)
	}
	return worst
}
