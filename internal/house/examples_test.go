package house_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readme returns the program that README.md begins with.
func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(text)
	require.NotNil(t, found, "README.md has no program")
	return string(found[1])
}

func TestTheProgramOfTheREADMECompiles(t *testing.T) {
	sources(t, "redlock", "pool", "clock", "internal")
	dir := consume(t, map[string]string{
		"main.go": readme(t),
		"work.go": "package main\n\nimport \"context\"\n\nfunc sendInvoices(context.Context) error { return nil }\n",
	})
	goCommand(t, dir, "mod", "vet", ".")
}

// What readers copy must not lose what it has deferred: releases and Close.
func TestNoExampleEndsTheProgramPastWhatItHasDeferred(t *testing.T) {
	all := append(sources(t, "examples"), parse(t, "README.md", readme(t)))
	documented, err := filepath.Glob(filepath.Join(root(t), "*", "example*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, documented)
	for _, path := range documented {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all = append(all, parse(t, path, text))
	}
	for _, s := range all {
		assert.Empty(t, s.fatalAfterDefer(), "let main call a function that returns the error")
	}
}

func TestTheSearchForLostDeferredCallsFindsThem(t *testing.T) {
	for body, want := range map[string]int{
		`defer f(); log.Fatal(1)`:              1,
		`defer f(); if x { log.Fatalf("") }`:   1,
		`defer f(); os.Exit(1)`:                1,
		`if x { log.Fatal(1) }; defer f()`:     0,
		`defer f(); log.Print(1)`:              0,
		`func() { defer f() }(); log.Fatal(1)`: 0,
	} {
		found := parse(t, "some.go", "package some; func g() { "+body+" }").fatalAfterDefer()
		assert.Len(t, found, want, body)
	}
}

// fatalAfterDefer returns where functions end the program after a defer.
func (s source) fatalAfterDefer() []string {
	var found []string
	ast.Inspect(s.file, func(node ast.Node) bool {
		var body *ast.BlockStmt
		switch f := node.(type) {
		case *ast.FuncDecl:
			body = f.Body
		case *ast.FuncLit:
			body = f.Body
		}
		if body == nil {
			return true
		}
		deferred := false
		ast.Inspect(body, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.FuncLit:
				return false // has defers of its own
			case *ast.DeferStmt:
				deferred = true
			case *ast.SelectorExpr:
				pkg, ok := n.X.(*ast.Ident)
				if ok && deferred && (pkg.Name == "log" && strings.HasPrefix(n.Sel.Name, "Fatal") || pkg.Name == "os" && n.Sel.Name == "Exit") {
					found = append(found, s.fset.Position(n.Pos()).String())
				}
			}
			return true
		})
		return true
	})
	return found
}

// An example that is not run is an example that does not work.
func TestEveryExampleHasATest(t *testing.T) {
	programs, err := filepath.Glob(filepath.Join(root(t), "examples", "*", "main.go"))
	require.NoError(t, err)
	require.NotEmpty(t, programs)
	for _, program := range programs {
		assert.FileExists(t, filepath.Join(filepath.Dir(program), "main_test.go"))
	}
}
