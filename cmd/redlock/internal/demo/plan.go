package demo

import (
	"fmt"
	"time"
)

// Fault is what can be wrong with a node.
type Fault int

// The faults, from mild to severe.
const (
	None Fault = iota
	Restarting
	Hung
	Killed
)

func (f Fault) String() string {
	return [...]string{"up", "restarting", "hung", "killed"}[f]
}

// Outage is a time during which a node was not well.
type Outage struct {
	Node        int
	Fault       Fault
	From, Until time.Duration
}

func (o Outage) String() string { return fmt.Sprintf("node %d was %v", o.Node+1, o.Fault) }

// minority returns how many of n nodes may fail without harm.
func minority(n int) int { return (n - 1) / 2 }

// Plan returns the outages to cause, in the order in which they begin. At no
// moment do they hit more than a minority of the nodes, nor more than two.
func Plan(nodes int, duration time.Duration) []Outage {
	// In hundredths of the duration. The last part is calm: what the faults
	// left behind must be gone by then, and the nodes be back in use.
	plan := []struct {
		node, from, until int
		fault             Fault
	}{
		{1, 8, 46, Killed},
		{3, 20, 38, Hung},
		{0, 54, 78, Hung},
		{4, 64, 69, Restarting},
	}
	if minority(nodes) < 2 {
		plan = plan[:0]
		plan = append(plan, []struct {
			node, from, until int
			fault             Fault
		}{
			// A node that is back may still be out of use for as long as a
			// Locker pauses between two looks at it, a second at the most.
			{1, 8, 22, Killed},
			{2, 34, 50, Hung},
			{0, 62, 66, Restarting},
			{1, 78, 92, Hung},
		}...)
	}
	outages := make([]Outage, len(plan))
	for i, p := range plan {
		outages[i] = Outage{
			Node:  p.node,
			Fault: p.fault,
			From:  duration * time.Duration(p.from) / 100,
			Until: duration * time.Duration(p.until) / 100,
		}
	}
	return outages
}
