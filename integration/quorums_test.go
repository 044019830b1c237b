package integration_test

import (
	"math/bits"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What docs/migrating-nodes.md says about which clients exclude each other follows from counting. Nodes are letters; a
// client is the list of nodes that it locks, or several lists of which it locks one after another, under the same key.

type nodeSet uint

func nodesOf(letters string) nodeSet {
	set := nodeSet(0)
	for _, letter := range letters {
		set |= 1 << (letter - 'A')
	}
	return set
}

func (s nodeSet) len() int { return bits.OnesCount(uint(s)) }

func (s nodeSet) String() string {
	var b strings.Builder
	for i := range 26 {
		if s&(1<<i) != 0 {
			b.WriteByte(byte('A' + i))
		}
	}
	return b.String()
}

// holds returns every set of nodes that may have the client's keys when it holds the lock, while some nodes are down.
// A node that has given its key to the lock of one list refuses that of the next: the tokens differ.
func holds(client []string, down nodeSet) []nodeSet {
	all := []nodeSet{0}
	for _, list := range client {
		var next []nodeSet
		for _, before := range all {
			can := nodesOf(list) &^ down &^ before
			for votes := can; ; votes = (votes - 1) & can {
				if votes.len() >= len(list)/2+1 {
					next = append(next, before|votes)
				}
				if votes == 0 {
					break
				}
			}
		}
		all = next
	}
	return all
}

func TestWhichClientsExcludeEachOther(t *testing.T) {
	one, five := []string{"A"}, []string{"ABCDE"}
	for _, c := range []struct {
		name          string
		first, second []string
		down          string // when they acquire
		downLater     string // when the second acquires
		apart         string // how both can hold the lock; empty: they cannot
	}{
		{name: "the same list", first: five, second: five},
		{name: "one master, and five nodes of which it is one", first: one, second: five, apart: "A BCD"},
		{name: "one master, and both", first: one, second: []string{"A", "ABCDE"}},
		{name: "both, and both", first: []string{"A", "ABCDE"}, second: []string{"A", "ABCDE"}},
		{name: "both, and five nodes", first: []string{"A", "ABCDE"}, second: five},
		{name: "one master, and both, of new nodes", first: one, second: []string{"A", "BCDEF"}},
		{name: "both, and five nodes, all of them new", first: []string{"A", "BCDEF"}, second: []string{"BCDEF"}},
		{name: "three nodes, and two more", first: []string{"ABC"}, second: five, apart: "AB CDE"},
		{name: "one node replaced", first: five, second: []string{"ABCDF"}, apart: "ABE CDF"},
		{name: "one node replaced, after it has gone", first: five, second: []string{"ABCDF"}, down: "E"},
		{name: "one node replaced, and a lock from before it went", first: five, second: []string{"ABCDF"}, downLater: "E", apart: "ABE CDF"},
		{name: "an empty node in the place of one that had a vote", first: five, second: []string{"ABCDF"}, downLater: "E", apart: "CDE ABF"},
		{name: "two nodes replaced, after they have gone", first: five, second: []string{"ABCFG"}, down: "DE"},
		{name: "two nodes replaced, after one has gone", first: five, second: []string{"ABCFG"}, down: "E", apart: "ABD CFG"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var apart []string
			down := nodesOf(c.down)
			firsts, seconds := holds(c.first, down), holds(c.second, down|nodesOf(c.downLater))
			require.NotEmpty(t, firsts)
			require.NotEmpty(t, seconds)
			for _, first := range firsts {
				for _, second := range seconds {
					if first&second == 0 {
						apart = append(apart, first.String()+" "+second.String())
					}
				}
			}
			if c.apart == "" {
				assert.Empty(t, apart)
			} else {
				assert.Contains(t, apart, c.apart)
			}
		})
	}
}
