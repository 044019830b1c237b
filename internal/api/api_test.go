package api_test

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/internal/api"
)

var update = flag.Bool("update", false, "write api.txt anew")

const (
	root   = "../.."   // tests run in their package's directory
	golden = "api.txt" // what the last commit exported
)

// tools are directories with packages that nobody has a reason to import.
var tools = map[string]bool{"integration": true, "bench": true, "internal": true, "testdata": true}

// public returns the packages that others can import, by their path in the
// repository, those of nested modules included.
func public(t *testing.T) map[string]*api.Package {
	t.Helper()
	found := map[string]*api.Package{}
	err := filepath.WalkDir(root, func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || dir == root {
			return err
		}
		if name := entry.Name(); tools[name] || name[0] == '.' || name[0] == '_' {
			return filepath.SkipDir
		}
		p, err := api.Parse(dir)
		if p != nil && p.Name != "main" {
			path, _ := filepath.Rel(root, dir) // dir is below root
			found[filepath.ToSlash(path)] = p
		}
		return err
	})
	require.NoError(t, err)
	require.Contains(t, found, "redlock")
	return found
}

// A line that goes or changes breaks programs; a line that comes is there to
// stay. Either should be meant: see CONTRIBUTING.md.
func TestWhatIsExportedIsWhatWasMeantToBe(t *testing.T) {
	packages := public(t)
	var now bytes.Buffer
	for _, path := range sorted(packages) {
		for _, line := range packages[path].Exported() {
			fmt.Fprintf(&now, "%s: %s\n", path, line)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(golden, now.Bytes(), 0o600))
		return
	}
	before, err := os.ReadFile(golden)
	require.NoError(t, err)
	gone, come := compare(lines(before), lines(now.Bytes()))
	assert.Empty(t, gone, "these are gone or were changed, which breaks programs; if it is meant: make api")
	assert.Empty(t, come, "these are new, and will have to stay; if it is meant: make api")
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for path, p := range public(t) {
		assert.Empty(t, p.Undocumented(), path)
	}
}

func sorted(packages map[string]*api.Package) []string {
	return slices.Sorted(maps.Keys(packages))
}

func lines(text []byte) []string { return strings.Split(strings.TrimSpace(string(text)), "\n") }

// compare returns the lines that are only in one of two lists.
func compare(before, now []string) (gone, come []string) {
	was, is := map[string]bool{}, map[string]bool{}
	for _, line := range before {
		was[line] = true
	}
	for _, line := range now {
		is[line] = true
		if !was[line] {
			come = append(come, line)
		}
	}
	for _, line := range before {
		if !is[line] {
			gone = append(gone, line)
		}
	}
	return gone, come
}

const sample = `// Package sample exports one of each.
package sample

import "time"

const (
	First Kind = iota // the first
	Second
	hidden
)

// Limit is documented.
const Limit = 10 * time.Second

var Fault, other = newFault(), 1 // a fault

// Kind is documented.
type Kind uint8

type Alias = Kind

// Both share a comment with their group, or not.
type Both struct {
	A, B int // said
	C    string

	D    bool
	e    bool
	Kind
	hiddenKind
}

// Set is generic.
type Set[T comparable] interface {
	Add(item T, when ...time.Time) (ok bool, err error)
	error
	seal()
}

func Free(a, b int, f func(x, y int) error) {}

// Of is documented.
func Of[T any](items ...T) *Kind { return nil }

func (k *Kind) Change(to Kind) error { return nil }

func (k Kind) String() string { return "" }

func (h hiddenKind) Method() {}

func free() {}
`

func parsed(t *testing.T, text string) *api.Package {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sample.go"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sample_test.go"), []byte("package sample; func Tested() {}"), 0o600))
	p, err := api.Parse(dir)
	require.NoError(t, err)
	return p
}

func TestTheListHasOneLineForEachExportedName(t *testing.T) {
	require.Equal(t, []string{
		"const First Kind = iota",
		"const Limit = 10 * time.Second",
		"const Second Kind = (as above) at 1",
		"func Free(int, int, func(int, int) error)",
		"func Of[T any](...T) *Kind",
		"method (*Kind) Change(Kind) error",
		"method (Kind) String() string",
		"type Alias = Kind",
		"type Both struct",
		"type Both struct, A int",
		"type Both struct, B int",
		"type Both struct, C string",
		"type Both struct, D bool",
		"type Both struct, Kind",
		"type Kind uint8",
		"type Set interface, Add(T, ...time.Time) (bool, error)",
		"type Set interface, and an unexported method",
		"type Set interface, error",
		"type Set[T comparable] interface",
		"var Fault",
	}, parsed(t, sample).Exported())
}

func TestUndocumentedNamesAreFound(t *testing.T) {
	require.Equal(t, []string{"Alias", "Both.D", "Set.Add", "Free", "Change"}, parsed(t, sample).Undocumented())
}

func TestADirectoryWithoutAPackageHasNone(t *testing.T) {
	p, err := api.Parse(t.TempDir())
	require.NoError(t, err)
	require.Nil(t, p)
}

func TestChangesOfTheAPIAreSeen(t *testing.T) {
	gone, come := compare(lines([]byte("a: func F()\na: func G()\n")), lines([]byte("a: func F() error\na: func G()\n")))
	require.Equal(t, []string{"a: func F()"}, gone)
	require.Equal(t, []string{"a: func F() error"}, come)
}
