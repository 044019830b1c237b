package demo

import (
	"cmp"
	"slices"
	"time"
)

// Hold is an interval in which a contender believed to hold the lock: from the
// moment Acquire returned to the moment it called Release, or to the moment
// the lock's validity ended, if that came first. From belongs to it, Until does
// not.
type Hold struct {
	Contender   int
	From, Until time.Duration
}

// Overlap is a time during which the lock was held twice.
type Overlap struct {
	First, Second Hold // First began first
	From, Until   time.Duration
}

// Witness is what the guarded sections saw themselves: a second opinion, which
// needs no clock.
type Witness struct {
	Sections int // that ran to their end
	Counter  int // which each of them raised by one, in two steps
	Met      int // how often a section found another holder inside
}

// Agrees reports whether no section noticed another.
func (w Witness) Agrees() bool { return w.Counter == w.Sections && w.Met == 0 }

// Verdict says whether the lock was ever held twice at once.
type Verdict struct {
	Holds      int
	Contenders int // that held the lock at least once
	Overlaps   []Overlap
	// Closest is the shortest time between the end of a hold and the beginning
	// of the next. It is negative if there are overlaps or fewer than two holds.
	Closest time.Duration
	Witness Witness
}

// OK reports whether the lock was held, and never twice at once. No holds at
// all prove nothing.
func (v Verdict) OK() bool {
	return v.Holds > 0 && len(v.Overlaps) == 0 && v.Witness.Agrees()
}

// Judge computes the verdict. The holds may be in any order; it does not
// change them. Two holds by the same contender at once count as well: the lock
// is not re-entrant.
func Judge(holds []Hold, witness Witness) Verdict {
	v := Verdict{Holds: len(holds), Witness: witness, Closest: -1}
	holds = sorted(holds)

	contenders := make(map[int]struct{})
	for i, h := range holds {
		contenders[h.Contender] = struct{}{}
		// In this order nothing that begins after h has ended can overlap with
		// it, so the search ends at the first of those.
		for _, later := range holds[i+1:] {
			if later.From >= h.Until {
				break
			}
			if until := min(h.Until, later.Until); until > later.From {
				v.Overlaps = append(v.Overlaps, Overlap{First: h, Second: later, From: later.From, Until: until})
			}
		}
	}
	v.Contenders = len(contenders)

	if len(v.Overlaps) == 0 && len(holds) > 1 {
		v.Closest = slices.Min(lengths(gaps(holds)))
	}
	return v
}

// Gap is a time between two holds.
type Gap struct{ From, Until time.Duration }

// Length returns how long the gap was.
func (g Gap) Length() time.Duration { return g.Until - g.From }

// gaps returns the times between one hold and the next. Holds that overlap, or
// follow at once, have a gap of length zero. The holds must be sorted.
func gaps(holds []Hold) []Gap {
	var all []Gap
	for i, end := 1, time.Duration(0); i < len(holds); i++ {
		// Not simply the hold before: a long one may outlast several.
		end = max(end, holds[i-1].Until)
		all = append(all, Gap{From: min(end, holds[i].From), Until: holds[i].From})
	}
	return all
}

func lengths(gaps []Gap) []time.Duration {
	all := make([]time.Duration, len(gaps))
	for i, g := range gaps {
		all[i] = g.Length()
	}
	return all
}

// sorted returns the holds in the order of their beginnings.
func sorted(holds []Hold) []Hold {
	holds = slices.Clone(holds)
	slices.SortFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Until, b.Until))
	})
	return holds
}
