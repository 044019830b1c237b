package conformance_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/integration/nodes"
)

const (
	theirModule = "github.com/go-redsync/redsync/v4"
	ourPackage  = "github.com/redquorum/go-redlock/compat/redsync"
)

// differences are the tests of redsync's that fail, each for a difference that docs/migrating.md gives the reason for.
var differences = map[string]string{
	"TestSetNXOnExtendAcquiresLockWhenKeyIsExpired": "Extend never revives a lock that has ended",
}

// redsync's tests come from the module cache, with other import paths, and are laid over our package: they look at
// unexported fields, so they have to be inside.
func TestRedsyncsOwnTestsPassApartFromTheDifferences(t *testing.T) {
	cluster := nodes.Start(t, 8)
	theirs, ours := dir(t, theirModule), dir(t, ourPackage)
	overlay := map[string]string{}
	hidden, err := filepath.Glob(filepath.Join(ours, "*_test.go"))
	require.NoError(t, err)
	for _, path := range hidden {
		overlay[path] = "" // the TestMain in there would stand beside theirs
	}
	lay := func(name string, text []byte) {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		overlay[filepath.Join(ours, name)] = path
	}
	harness, err := os.ReadFile("testdata/harness.go.txt")
	require.NoError(t, err)
	lay("theirs_harness_test.go", harness)
	wanted := map[string]bool{}
	for name, keep := range map[string]func(*ast.FuncDecl) bool{
		"mutex_test.go":   func(f *ast.FuncDecl) bool { return f.Name.Name != "newTestMutexes" }, // the harness has it
		"error_test.go":   func(*ast.FuncDecl) bool { return true },
		"redsync_test.go": func(f *ast.FuncDecl) bool { return f.Name.Name == "TestRedsync" }, // the rest is servers and drivers
	} {
		text, tests := translate(t, filepath.Join(theirs, name), keep)
		lay("theirs_"+name, text)
		for _, test := range tests {
			wanted[test] = true
		}
	}
	table, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	overlayFile := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, table, 0o600))

	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-count=1", "-timeout=5m", "-overlay", overlayFile, ourPackage)
	cmd.Env = append(os.Environ(), "CONFORMANCE_NODES="+strings.Join(cluster.Addrs(), ","))
	out, _ := cmd.CombinedOutput() // it says by exit status what the events say, too
	seen, log := map[string]string{}, strings.Builder{}
	for scanner := bufio.NewScanner(bytes.NewReader(out)); scanner.Scan(); {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(scanner.Bytes(), &event) != nil {
			event.Output = scanner.Text() + "\n"
		}
		log.WriteString(event.Output)
		if event.Action == "pass" || event.Action == "fail" || event.Action == "skip" {
			seen[event.Test] = event.Action
		}
	}
	for _, test := range slices.Sorted(maps.Keys(wanted)) {
		want, reason := "pass", ""
		if difference, ok := differences[test]; ok {
			want, reason = "fail", " ("+difference+")"
		}
		t.Logf("%s: %s%s", test, seen[test], reason)
		if seen[test] != want {
			t.Errorf("%s: %q instead of %q", test, seen[test], want)
		}
	}
	require.Subset(t, slices.Collect(maps.Keys(wanted)), slices.Collect(maps.Keys(differences)))
	if t.Failed() {
		t.Log(log.String())
	}
}

// dir returns where a module's or a package's source is.
func dir(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", path).Output()
	require.NoError(t, err, path)
	return strings.TrimSpace(string(out))
}

// translate returns a source file with only some of its functions, which imports our packages instead of redsync's,
// and the names of its tests.
func translate(t *testing.T, path string, keep func(*ast.FuncDecl) bool) (text []byte, tests []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	used := map[string]bool{}
	file.Decls = slices.DeleteFunc(file.Decls, func(decl ast.Decl) bool {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			return decl.(*ast.GenDecl).Tok != token.IMPORT && strings.HasSuffix(path, "redsync_test.go")
		}
		if !keep(f) {
			return true
		}
		if strings.HasPrefix(f.Name.Name, "Test") {
			tests = append(tests, f.Name.Name)
		}
		ast.Inspect(f, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok {
				if pkg, ok := selector.X.(*ast.Ident); ok {
					used[pkg.Name] = true
				}
			}
			return true
		})
		return false
	})
	for _, decl := range file.Decls {
		imports, ok := decl.(*ast.GenDecl)
		if !ok || imports.Tok != token.IMPORT {
			continue
		}
		imports.Specs = slices.DeleteFunc(imports.Specs, func(spec ast.Spec) bool {
			s := spec.(*ast.ImportSpec)
			path := strings.Trim(s.Path.Value, `"`)
			name := path[strings.LastIndexByte(path, '/')+1:]
			if s.Name != nil {
				name = s.Name.Name
			}
			s.Path.Value = strings.Replace(s.Path.Value, theirModule, ourPackage, 1)
			return !used[name]
		})
	}
	var b bytes.Buffer
	require.NoError(t, format.Node(&b, fset, file))
	return b.Bytes(), tests
}
