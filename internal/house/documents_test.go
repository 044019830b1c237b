package house_test

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A guarantee is worth the test behind it, so each test that the documents
// name must be there under that name.
func TestTheTestsThatTheDocumentsNameExist(t *testing.T) {
	declared := make(map[string]bool)
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root(t), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range declaration.FindAllStringSubmatch(string(text), -1) {
			declared[match[1]] = true
		}
		return err
	}))

	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`")
	found := 0
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		some, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(pattern)))
		require.NoError(t, err)
		documents = append(documents, some...)
	}
	for _, name := range documents {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			assert.True(t, declared[match[1]], "%s names %s, which is not there", name, match[1])
		}
	}
	require.Greater(t, found, 20, "the documents name hardly any tests")
}

// An option that the README does not name is one that nobody finds.
func TestTheREADMENamesEveryOption(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	require.NoError(t, err)
	for pkg, qualifier := range map[string]string{"redlock": "", "pool": "pool."} {
		var known, missing []string
		for _, s := range sources(t, pkg) {
			for _, declared := range s.file.Decls {
				f, ok := declared.(*ast.FuncDecl)
				if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "With") {
					continue
				}
				known = append(known, qualifier+f.Name.Name)
				if !strings.Contains(string(text), "`"+qualifier+f.Name.Name+"`") {
					missing = append(missing, qualifier+f.Name.Name)
				}
			}
		}
		assert.NotEmpty(t, known, pkg)
		assert.Empty(t, missing)
	}
}
