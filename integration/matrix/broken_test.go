package matrix_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
)

// A sabotage breaks the library in one place: it replaces a text in one of its files.
//
// It is the real library that is broken, by `go test -overlay`, and not a naive one that is written for the
// purpose: what has to be shown is that the matrix sees the mistake among everything else that the library does.
// Nothing in the work tree is touched. When the text is not there any more the test fails and says so: then the
// sabotage has to follow the library.
type sabotage struct {
	name     string
	file     string // below the root of the repository
	old, new string

	cells cells
	// cell must be red, and says is among what is said about it.
	cell, says string
}

// cells are the arguments that choose some.
type cells struct{ fault, op, hit string }

func (c cells) args() []string {
	args := []string{"-fault", c.fault, "-op", c.op}
	if c.hit != "" {
		args = append(args, "-hit", c.hit)
	}
	return args
}

var sabotages = []sabotage{
	{
		name:  "release without compare",
		file:  "internal/scripts/lua/release.lua",
		old:   "if redis.pcall('GET', KEYS[i]) == token then",
		new:   "if redis.pcall('GET', KEYS[i]) then",
		cells: cells{"taken by another", "release", "2"},
		cell:  "taken by another | release | 2 of 5 nodes",
		says:  `another owner's key "cell-release" was deleted`,
	},
	{
		name:  "rollback that skips failed nodes",
		file:  "redlock/acquire.go",
		old:   "c.doubt.Or(bit(node))",
		new:   "c.clean.Or(bit(node))",
		cells: cells{"replies lost", "acquire", "3"},
		cell:  "replies lost | acquire | 3 of 5 nodes",
		says:  "nobody holds the lock, and its key is left on",
	},
	{
		name:  "quorum of N/2",
		file:  "internal/quorum/tally.go",
		old:   "func Size(n int) int { return n/2 + 1 }",
		new:   "func Size(n int) int { return n / 2 }",
		cells: cells{"stop", "acquire", "3"},
		cell:  "stop | acquire | 3 of 5 nodes",
		says:  "came to ok, not no-quorum",
	},
	{
		name:  "refusal that is taken for a hang-up",
		file:  "pool/dial.go",
		old:   "case isAnswer(err):\n\t\treturn err",
		new:   "case isAnswer(err):\n\t\treturn errors.New(\"EOF\")",
		cells: cells{"WRONGPASS", "acquire", "3"},
		cell:  "WRONGPASS | acquire | 3 of 5 nodes",
		says:  "no error that says for every node that has the fault WRONGPASS",
	},
}

func TestABrokenLibraryTurnsCellsRed(t *testing.T) {
	kind, err := nodes.Backend()
	require.NoError(t, err)
	if kind == nodes.Embedded {
		t.Skip("there is no matrix on embedded nodes")
	}
	t.Run("and one that is not broken does not", func(t *testing.T) {
		said, err := tryCells(t, "", cells{"taken by another|replies lost|stop", "acquire|release", ""})
		require.NoError(t, err, said)
		require.NotContains(t, said, "red: ")
		require.Contains(t, said, "24 cells green, 0 red")
	})
	for _, s := range sabotages {
		t.Run(s.name, func(t *testing.T) {
			said, err := tryCells(t, s.overlay(t), s.cells)
			require.Error(t, err, "the matrix has not noticed:\n%s", said)
			red := regexp.MustCompile(`(?s)red: ` + regexp.QuoteMeta(s.cell) + `\n.*?again: `).FindString(said)
			require.NotEmpty(t, red, "the cell is not red:\n%s", said)
			assert.Contains(t, red, s.says)
		})
	}
}

// overlay writes the broken file and what -overlay wants to know of it.
func (s sabotage) overlay(t *testing.T) (path string) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("..", "..", filepath.FromSlash(s.file)))
	require.NoError(t, err)
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), s.old), "%s does not have this exactly once: %s", s.file, s.old)

	dir := t.TempDir()
	broken := filepath.Join(dir, filepath.Base(s.file))
	require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(source), s.old, s.new, 1)), 0o600))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
	require.NoError(t, err)
	path = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// tryCells runs the matrix in a process of its own, on a library that is replaced in part, and returns what it
// printed. It is an error if a cell is red.
func tryCells(t *testing.T, overlay string, c cells) (said string, err error) {
	t.Helper()
	args := []string{"test", "-count=1", "-v", "-run=^TestFaultMatrix$", "-timeout=5m"}
	if raceDetector {
		args = append(args, "-race") // as this very test, so that what it was built of need not be built again
	}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	args = append(args, ".", "-args")
	out, err := exec.CommandContext(t.Context(), "go", append(args, c.args()...)...).CombinedOutput()
	return string(out), err
}
