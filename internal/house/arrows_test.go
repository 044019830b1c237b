package house_test

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Arrows point downward only. The table says what else of the house a package
// may know, directly or through others; redlock, at the top of the library, may
// know all of it.
func TestArrowsPointDownward(t *testing.T) {
	for pkg, may := range map[string][]string{
		"clock":            nil,
		"internal/quorum":  nil,
		"internal/scripts": nil,
		"internal/foreign": nil,
		"pool":             {"clock", "internal/scripts"},
		"compat/redsync": {
			"compat/redsync/redis", "redlock", "pool", "clock", "internal/scripts", "internal/quorum", "internal/foreign",
		},
		"redlock": {"pool", "clock", "internal/scripts", "internal/quorum", "internal/foreign"},
	} {
		t.Run(pkg, func(t *testing.T) {
			sources(t, pkg)
			for _, path := range goList(t, root(t), "readonly", "./"+pkg) {
				other, ours := strings.CutPrefix(path, module+"/")
				if ours && other != pkg {
					assert.Contains(t, may, other, "%s knows %s", pkg, other)
				}
			}
		})
	}
}

// Redis is for pool and redlock; who counts votes or reads clocks, or says what
// goes over the wire, needs only the standard library.
func TestTheLowerFloorsKnowTheStandardLibraryOnly(t *testing.T) {
	for _, s := range sources(t, "clock", "internal/quorum", "internal/scripts") {
		for _, path := range s.imports() {
			first, _, _ := strings.Cut(path, "/")
			assert.NotContains(t, first, ".", "%s imports %s", s.path, path)
		}
	}
}

// Numbers in, a verdict out: no time, no locks, no contexts.
func TestTheCountOfVotesImportsNothing(t *testing.T) {
	for _, s := range sources(t, "internal/quorum") {
		if s.path == "internal/quorum/tally.go" {
			assert.Empty(t, s.imports())
			return
		}
	}
	require.Fail(t, "internal/quorum/tally.go is not there")
}

// A reader who opens redlock should find the algorithm, not scripts.
func TestTheLuaIsInOnePlace(t *testing.T) {
	const home = "internal/scripts/lua"
	top := root(t)
	var found []string
	for _, dir := range []string{"redlock", "pool", "clock", "internal"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".lua") {
				relative, _ := filepath.Rel(top, filepath.Dir(path)) // path is below top
				found = append(found, filepath.ToSlash(relative))
			}
			return err
		})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{home}, slices.Compact(found))
}
