package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A mutant is a patch with one bug. What stands before the diff says what the
// bug is, what it breaks, and where it was met.
type mutant struct {
	name string
	path string
	text string
}

// mutants returns the patches of a work tree.
func mutants(tree string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(tree, "internal", "sim", "mutants", "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, mutant{strings.TrimSuffix(filepath.Base(path), ".patch"), path, string(text)})
	}
	return all, nil
}

// title is the first line: the bug.
func (m mutant) title() string {
	line, _, _ := strings.Cut(m.text, "\n")
	return line
}

// header is what stands before the diff.
func (m mutant) header() string {
	header, _, _ := strings.Cut(m.text, "\n--- ")
	return strings.TrimSpace(header)
}

func (m mutant) apply(ctx context.Context, dir string) error  { return m.git(ctx, dir) }
func (m mutant) revert(ctx context.Context, dir string) error { return m.git(ctx, dir, "--reverse") }

// check returns an error if the patch does not apply to a work tree, which it
// does not change.
func (m mutant) check(ctx context.Context, dir string) error { return m.git(ctx, dir, "--check") }

func (m mutant) git(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append(append([]string{"apply"}, args...), m.path)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", m.name, err, out)
	}
	return nil
}
