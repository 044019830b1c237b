// Command mutants proves that the tests can fail. Each patch beside it puts one
// bug into the library: one that some lock library had, or could have. It
// applies them one after another to a copy of the work tree, runs the tests
// there, and demands that something turns red.
//
//	go run ./internal/sim/mutants
//	go run ./internal/sim/mutants -run 'renew|refill' -packages ./internal/sim
//
// A mutant that survives is a check that is missing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The packages whose tests are run, those first that take the least time to
// turn red.
const fast = "./clock ./internal/quorum ./internal/scripts ./internal/sim ./pool ./redlock"

// patience is how long one package's tests may take; a bug can make them wait
// for ever.
const patience = 10 * time.Minute

func main() {
	run := flag.String("run", "", "only the mutants whose names match this regular expression")
	packages := flag.String("packages", fast, "the packages whose tests are run, in this order, until one is red")
	trust := flag.Bool("trust", false, "do not see first whether the tests are green without a mutant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := hunt(ctx, *run, strings.Fields(*packages), *trust); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// hunt looks for mutants that survive.
func hunt(ctx context.Context, run string, packages []string, trust bool) error {
	wanted, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	tree, err := root(ctx)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // a directory of temporary files
	if err := copyTree(ctx, tree, scratch); err != nil {
		return err
	}

	all, err := mutants(scratch)
	if err != nil {
		return err
	}

	fmt.Printf("%-42s %8s  %s\n", "mutant", "seconds", "caught by")
	if !trust { // what is red without a bug would seem to catch every one
		began := time.Now()
		if red, text := firstRed(ctx, scratch, packages); red != "" {
			return fmt.Errorf("red without any mutant: %s\n%s", red, beginning(text))
		}
		fmt.Printf("%-42s %8.1f  %s\n", "(none)", time.Since(began).Seconds(), "nothing")
	}

	var survivors []string
	hunted := 0
	for _, m := range all {
		if !wanted.MatchString(m.name) {
			continue
		}
		hunted++
		if err := m.apply(ctx, scratch); err != nil {
			return err
		}
		began := time.Now()
		red, text := firstRed(ctx, scratch, packages)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case strings.Contains(text, "[build failed]"), strings.Contains(text, "[setup failed]"):
			survivors = append(survivors, m.name)
			red = "NOTHING, it does not compile: " + beginning(text)
		case red == "":
			survivors = append(survivors, m.name)
			red = "NOTHING: " + m.title()
		}
		fmt.Printf("%-42s %8.1f  %s\n", m.name, time.Since(began).Seconds(), red)
		if err := m.revert(ctx, scratch); err != nil {
			return err
		}
	}
	if len(survivors) > 0 {
		return fmt.Errorf("%d of %d mutants survive: %s", len(survivors), hunted, strings.Join(survivors, ", "))
	}
	fmt.Printf("all %d mutants are caught\n", hunted)
	return nil
}

// firstRed returns the first test that fails, and what was printed.
func firstRed(ctx context.Context, dir string, packages []string) (red, text string) {
	for _, pkg := range packages {
		cmd := exec.CommandContext(ctx, "go", "test", "-failfast", "-vet=off", "-timeout", patience.String(), pkg)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			return pkg + ": " + culprit(string(out)), string(out)
		}
	}
	return "", ""
}

// beginning is enough of the output of go test to see what is wrong: of tests
// that hang it shows every goroutine.
func beginning(text string) string { return text[:min(len(text), 2000)] }

var (
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	running = regexp.MustCompile(`(?m)^\t+(Test\w+)\S* \(`)
	fatal   = regexp.MustCompile(`(?m)^(?:panic|fatal error): (.*)`)
)

// culprit returns the test that turned red, as the output of go test shows it.
func culprit(out string) string {
	if m := failure.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	m := fatal.FindStringSubmatch(out)
	if m == nil {
		return "something"
	}
	if name := running.FindStringSubmatch(out); name != nil {
		return name[1] + " (" + m[1] + ")"
	}
	return m[1]
}

// root returns the top directory of this module.
func root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// copyTree copies the work tree: what is committed, changed and new.
func copyTree(ctx context.Context, tree, to string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = tree
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for path := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(tree, path))
		if os.IsNotExist(err) {
			continue // deleted, not committed yet
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
