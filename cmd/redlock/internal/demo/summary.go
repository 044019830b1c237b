package demo

import (
	"slices"
	"time"
)

// Waits describes how long acquisitions took.
type Waits struct{ Mean, Median, Max time.Duration }

func waitsOf(all []time.Duration) Waits {
	if len(all) == 0 {
		return Waits{}
	}
	sum := time.Duration(0)
	for _, d := range all {
		sum += d
	}
	return Waits{Mean: sum / time.Duration(len(all)), Median: median(all), Max: slices.Max(all)}
}

// median returns the upper median; 0 of nothing.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// LongestGap returns the longest time without a holder, from the beginning to
// the end of the demo: a lock that nobody gets any more has a gap at the end.
func LongestGap(holds []Hold, end time.Duration) Gap {
	longest := Gap{}
	for _, g := range append(gaps(bounded(holds, end)), Gap{}) {
		if g.Length() > longest.Length() {
			longest = g
		}
	}
	return longest
}

// bounded returns the holds, sorted, between an empty one at zero and another
// at end.
func bounded(holds []Hold, end time.Duration) []Hold {
	return sorted(append(slices.Clone(holds), Hold{Contender: -1}, Hold{Contender: -1, From: end, Until: end}))
}

// During returns the outages that overlap with a gap.
func During(outages []Outage, g Gap) []Outage {
	var all []Outage
	for _, o := range outages {
		if o.From < g.Until && o.Until > g.From {
			all = append(all, o)
		}
	}
	return all
}

// handOvers returns the median time between two holds, apart for the times
// when all nodes were well and when some were not.
func handOvers(h history) (calm, faulty time.Duration) {
	var well, not []time.Duration
	for _, g := range gaps(h.holds) {
		if len(During(h.outages, g)) == 0 {
			well = append(well, g.Length())
		} else {
			not = append(not, g.Length())
		}
	}
	return median(well), median(not)
}

// held returns for how long a contender's holds lasted, of everybody's if
// contender is negative.
func held(holds []Hold, contender int) time.Duration {
	sum := time.Duration(0)
	for _, h := range holds {
		if contender < 0 || h.Contender == contender {
			sum += max(h.Until-h.From, 0)
		}
	}
	return sum
}
