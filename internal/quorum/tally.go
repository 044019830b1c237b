// Package quorum counts the votes of N nodes on one question, and decides as
// soon as the outcome is certain. It does not ask them: that is the caller's
// part. It knows neither Redis nor locks.
//
// The count itself, [Tally] with [Early] and [Certain], is pure: numbers in, a
// verdict out. [Round] adds the concurrency around it.
package quorum

// Size returns how many of n nodes make a quorum: ⌊n/2⌋+1. n counts the nodes
// that are configured, reachable or not; any two quorums share a node.
func Size(n int) int { return n/2 + 1 }

// Vote is what one node has said.
type Vote uint8

// Failed and Unknown differ in what may have happened on the node: after Failed
// the caller knows that its question came back or never left; after Unknown the
// node may still act on it.
const (
	Pending Vote = iota // nothing yet
	Granted
	Refused
	Failed
	Unknown
)

// Verdict is what the votes amount to.
type Verdict uint8

// Undecided turns into one of the others once, and that one is final: no later
// vote changes it.
const (
	Undecided Verdict = iota
	Won
	Lost
)

// Tally counts the votes of Nodes nodes.
type Tally struct {
	Nodes, Granted, Refused, Failed, Unknown int
}

// Add counts one vote more.
func (t *Tally) Add(v Vote) {
	switch v {
	case Granted:
		t.Granted++
	case Refused:
		t.Refused++
	case Failed:
		t.Failed++
	case Unknown:
		t.Unknown++
	case Pending:
	}
}

// Quorum returns how many grants win.
func (t Tally) Quorum() int { return Size(t.Nodes) }

// Outstanding returns how many nodes have not voted.
func (t Tally) Outstanding() int {
	return t.Nodes - t.Granted - t.Refused - t.Failed - t.Unknown
}

// Denied reports whether so many nodes refused that no quorum can grant,
// whatever the others say.
func (t Tally) Denied() bool { return t.Refused > t.Nodes-t.Quorum() }

// Unheard reports whether so many nodes failed to answer that no quorum can
// grant, whatever the others say.
func (t Tally) Unheard() bool { return t.Failed+t.Unknown > t.Nodes-t.Quorum() }

// Doubtful reports whether the votes that are out would decide if the tally is
// Unheard: some nodes have failed, and the rest may make them enough.
func (t Tally) Doubtful() bool {
	silent := t.Failed + t.Unknown
	return silent > 0 && !t.Unheard() && silent+t.Outstanding() > t.Nodes-t.Quorum()
}

// Rule turns a tally into a verdict.
type Rule func(Tally) Verdict

// Early decides as soon as a quorum granted or a quorum has become impossible,
// whatever made it so.
func Early(t Tally) Verdict {
	switch {
	case t.Granted >= t.Quorum():
		return Won
	case t.Granted+t.Outstanding() < t.Quorum():
		return Lost
	}
	return Undecided
}

// Certain decides as soon as it is known why: a quorum granted, or so many
// refused that none can, or so many did not answer that none can. A mixture
// of refusals and failures waits for the last vote, for the caller will do
// different things depending on which of them prevails.
func Certain(t Tally) Verdict {
	switch {
	case t.Granted >= t.Quorum():
		return Won
	case t.Denied(), t.Unheard(), t.Outstanding() == 0:
		return Lost
	}
	return Undecided
}
