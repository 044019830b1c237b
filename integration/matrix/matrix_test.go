package matrix_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/matrix"
	"github.com/redquorum/go-redlock/integration/nodes"
)

var (
	onlyFault     = flag.String("fault", "", "try only faults whose whole name this regular expression matches")
	onlyOperation = flag.String("op", "", "try only operations whose whole name this regular expression matches")
	onlyHit       = flag.Int("hit", -1, "try only cells in which so many nodes have the fault")
	markdown      = flag.String("markdown", "", "write the matrix to this file")
)

// wanted returns the cells that the flags leave, in order.
func wanted(t *testing.T) []matrix.Expectation {
	t.Helper()
	all, err := matrix.Table()
	require.NoError(t, err)
	matches := func(pattern, text string) bool {
		return pattern == "" || regexp.MustCompile("^(?:"+pattern+")$").MatchString(text)
	}
	return slices.DeleteFunc(all, func(e matrix.Expectation) bool {
		return !matches(*onlyFault, e.Fault) || !matches(*onlyOperation, e.Operation) || *onlyHit >= 0 && *onlyHit != e.Hit
	})
}

func TestTheTableHasEveryCellOnce(t *testing.T) {
	all, err := matrix.Table()
	require.NoError(t, err)
	count := map[string]int{}
	for _, e := range all {
		count[e.Fault]++
	}
	for _, f := range matrix.Faults {
		require.Equal(t, len(matrix.Hits)*len(matrix.Operations), count[f.Name], "cells of %s", f.Name)
		delete(count, f.Name)
	}
	require.Empty(t, count, "the table has faults that nobody can inflict")
}

func TestFaultMatrix(t *testing.T) {
	kind, err := nodes.Backend()
	require.NoError(t, err)
	if kind == nodes.Embedded {
		t.Skip("embedded nodes have no CONFIG, ACL and CLIENT commands to inflict faults with")
	}
	cells := wanted(t)
	require.NotEmpty(t, cells, "no cell is left to try")
	hits := map[int]bool{}
	for _, e := range cells {
		hits[e.Hit] = true
	}

	began := time.Now()
	m := matrix.New(t, slices.DeleteFunc(slices.Clone(matrix.Hits), func(hit int) bool { return !hits[hit] }))
	report := matrix.NewReport(t, m, began)
	for _, f := range matrix.Faults {
		row := slices.DeleteFunc(slices.Clone(cells), func(e matrix.Expectation) bool { return e.Fault != f.Name })
		if len(row) == 0 {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			results := m.Round(t, f, row)
			report.Add(f, results)
			for _, r := range results {
				if r.Red() {
					t.Error(matrix.Explain(r))
				}
			}
		})
	}
	text := report.Markdown()
	if *markdown != "" {
		require.NoError(t, os.WriteFile(*markdown, []byte(text), 0o600))
	}
	fmt.Println(report.Summary())
}
