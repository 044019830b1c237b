package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// To hunt them takes minutes, but a patch that the code has moved away from
// must be seen at once. This test is not in a package of its own, since a
// program cannot be imported.
func TestEveryMutantAppliesAndSaysWhatItBreaks(t *testing.T) {
	tree, err := filepath.Abs("../../..")
	require.NoError(t, err)
	all, err := mutants(tree)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 25)
	for _, m := range all {
		for line := range strings.SplitSeq(m.text, "\n") {
			if path, ok := strings.CutPrefix(line, "--- a/"); ok {
				_, err := os.Stat(filepath.Join(tree, path)) // or go test takes the last result for that of the present code
				require.NoError(t, err)
			}
		}
		require.NoError(t, m.check(t.Context(), tree))
		assert.GreaterOrEqual(t, strings.Count(m.header(), "\n"), 1, "%s: the bug in one line, and then what it breaks", m.name)
	}
}

func TestTheTestThatFailedIsRead(t *testing.T) {
	for out, want := range map[string]string{
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\nFAIL":                        "TestA",
		"panic: test timed out after 3m0s\n\trunning tests:\n\t\tTestB/c (3m0s)\n\ngoroutine": "TestB (test timed out after 3m0s)",
		"panic: deadlock [recovered, repanicked]\n\ngoroutine 7":                              "deadlock [recovered, repanicked]",
		"exit status 2": "something",
	} {
		assert.Equal(t, want, culprit(out))
	}
}
