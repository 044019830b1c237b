package house_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "github.com/redquorum/go-redlock"

// root returns the top directory of this checkout.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..") // tests run in their package's directory
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(text, []byte("module "+module+"\n")), "%s is not the root of %s", dir, module)
	return dir
}

// A source is a Go file that is not a test. Build tags are ignored: what is true
// of the house is true on every platform.
type source struct {
	path string // relative to the root, with slashes
	file *ast.File
	fset *token.FileSet
}

// sources returns the files of some directories below the root, and of what is
// below those.
func sources(t *testing.T, dirs ...string) []source {
	t.Helper()
	top := root(t)
	var all []source
	for _, dir := range dirs {
		before := len(all)
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			relative, err := filepath.Rel(top, path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all = append(all, parse(t, filepath.ToSlash(relative), text))
			return nil
		})
		require.NoError(t, err)
		require.Greater(t, len(all), before, "%s has no Go files; has it moved?", dir)
	}
	return all
}

func parse(t *testing.T, path string, text any) source {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	return source{path, file, fset}
}

// imports returns what the file imports.
func (s source) imports() []string {
	var all []string
	for _, spec := range s.file.Imports {
		all = append(all, strings.Trim(spec.Path.Value, "`\""))
	}
	return all
}

// goList runs `go list -deps` in a directory.
func goList(t *testing.T, dir, mod string, args ...string) []string {
	t.Helper()
	return strings.Fields(goCommand(t, dir, mod, append([]string{"list", "-deps"}, args...)...))
}

// goCommand runs the go command in a directory, without a network, and returns
// what it prints. mod says whether it may change the go.mod there.
//
// The result of a test is cached by the files that the test itself has opened,
// and this is another process: callers also read the sources they ask about.
func goCommand(t *testing.T, dir, mod string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	// What is not in the module cache cannot be needed: building this test has
	// needed more.
	cmd.Env = append(os.Environ(), "PWD="+dir, "GOFLAGS=-mod="+mod, "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%v\n%s", cmd, stderr.String())
	return string(out)
}
