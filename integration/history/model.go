package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

type verb string

const (
	acquire verb = "acquire" // a claim was told that it has the lock
	observe verb = "observe" // it was told that it still has it
	end     verb = "end"     // it released the lock, or its validity was over
)

// operation is the input of a step of the model. There is no output: what is recorded is what succeeded.
type operation struct {
	do     verb
	name   string
	claim  int    // counted from 1
	number uint64 // the fencing number of an acquire
}

func (o operation) String() string {
	if o.do == acquire {
		return fmt.Sprintf("%s %q: claim %d, number %d", o.do, o.name, o.claim, o.number)
	}
	return fmt.Sprintf("%s %q: claim %d", o.do, o.name, o.claim)
}

// state is one lock.
type state struct {
	holder int    // 0: nobody
	number uint64 // of the last holder
}

// step returns whether the lock allows the operation, and what becomes of it.
func (s state) step(o operation) (bool, state) {
	switch o.do {
	case acquire:
		return s.holder == 0 && o.number > s.number, state{o.claim, o.number}
	case observe:
		return s.holder == o.claim, s
	case end:
		return s.holder == o.claim, state{0, s.number}
	}
	panic("history: no verb " + string(o.do))
}

var model = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		lanes := map[string]int{}
		var parts [][]porcupine.Operation
		for _, op := range all {
			name := op.Input.(operation).name
			lane, ok := lanes[name]
			if !ok {
				lane = len(parts)
				lanes[name], parts = lane, append(parts, nil)
			}
			parts[lane] = append(parts[lane], op)
		}
		return parts
	},
	Init: func() any { return state{} },
	Step: func(s, input, _ any) (bool, any) {
		return s.(state).step(input.(operation))
	},
	DescribeOperation: func(input, _ any) string { return input.(operation).String() },
	DescribeState: func(s any) string {
		return fmt.Sprintf("claim %d, number %d", s.(state).holder, s.(state).number)
	},
}
