package house_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// consume makes a throwaway module that requires ours, with these files, and
// returns its directory.
func consume(t *testing.T, files map[string]string) string {
	t.Helper()
	top, dir := root(t), t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(top, name))
		require.NoError(t, err)
		return string(text)
	}
	_, version, ok := strings.Cut(read("go.mod"), "\ngo ")
	require.True(t, ok, "go.mod names no Go version")
	version, _, _ = strings.Cut(version, "\n")

	write("go.mod", "module example.com/consumer\n\ngo "+version+"\n\n"+
		"require "+module+" v0.0.0\n\nreplace "+module+" => "+top+"\n")
	write("go.sum", read("go.sum"))
	for name, text := range files {
		write(name, text)
	}
	return dir
}

// importing is a program that imports a package of ours.
func importing(pkg string) map[string]string {
	return map[string]string{"main.go": "package main\n\nimport _ \"" + pkg + "\"\n\nfunc main() {}\n"}
}

func TestAConsumerCompilesInThreeModulesAndUs(t *testing.T) {
	sources(t, "redlock", "pool", "clock", "internal", "compat")
	for _, pkg := range []string{"/redlock", "/compat/redsync"} {
		dir := consume(t, importing(module+pkg))
		seen := map[string]bool{}
		for _, path := range goList(t, dir, "mod", "-f", "{{with .Module}}{{.Path}}{{end}}", ".") {
			seen[path] = true
		}
		assert.Equal(t, map[string]bool{
			"example.com/consumer":               true,
			module:                               true,
			"github.com/gomodule/redigo":         true,
			"github.com/hashicorp/go-multierror": true,
			"github.com/hashicorp/errwrap":       true, // by go-multierror
		}, seen, pkg)
	}
}

func TestAConsumerDoesNotCompileInWhatIsForTests(t *testing.T) {
	sources(t, "redlock", "pool", "clock", "internal")
	dir := consume(t, importing(module+"/redlock"))
	for _, path := range goList(t, dir, "mod", ".") {
		ours := strings.TrimPrefix(path, module+"/")
		switch top, _, _ := strings.Cut(ours, "/"); {
		case path == "testing" || strings.HasPrefix(path, "testing/"):
			assert.Fail(t, "the testing package is compiled in", path)
		case ours != path && top != "redlock" && top != "pool" && top != "clock" &&
			ours != "internal/quorum" && ours != "internal/scripts" && ours != "internal/foreign":
			assert.Fail(t, "a package of ours that is no part of the library", path)
		}
	}
}
