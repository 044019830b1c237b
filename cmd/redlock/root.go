package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

// run is the whole program: args are all arguments, the program's name
// included, and env is in the form of os.Environ. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	args, rest := cutRest(args)
	root := newRoot(invocation{env, rest})
	root.Reader, root.Writer, root.ErrWriter = stdin, stdout, stderr
	err := root.Run(ctx, args)
	status, silent := exitStatus(err)
	switch {
	case silent:
	case root.Bool(flagJSON):
		_ = writeJSON(stderr, failure{describeError(err, status)}) // the status says it, too
	default:
		text := "redlock: " + harmless(strings.TrimPrefix(err.Error(), "redlock: "))
		if status == exitUsage || status == exitRunUsage {
			text += "\nSee redlock --help."
		}
		_, _ = fmt.Fprintln(stderr, text)
	}
	return status
}

// invocation is what the program was given beside its flags.
type invocation struct {
	env  environ
	rest []string // what follows "--"; nil without one
}

// cutRest cuts off what follows "--". The library would forget where that was.
func cutRest(args []string) (before, rest []string) {
	i := slices.Index(args, "--")
	if i < 0 || args[len(args)-1] == completionRequest {
		return args, nil
	}
	return args[:i], append([]string{}, args[i+1:]...)
}

// completionRequest is what the completion scripts of the library append. What
// they ask about must never run, so it is the library's to read.
const completionRequest = "--generate-shell-completion"

// operands returns the arguments that are no flags.
func (i invocation) operands(c *cli.Command) []string {
	return append(c.Args().Slice(), i.rest...)
}

func newRoot(given invocation) *cli.Command {
	return &cli.Command{
		Name:  "redlock",
		Usage: "locks on a majority of independent Redis masters",
		Flags: append(clusterFlags(given.env),
			&cli.BoolFlag{Name: flagJSON, Usage: "print JSON, one value on a line; errors and logs, too"},
			&cli.BoolFlag{Name: flagVerbose, Aliases: []string{"v"}, Usage: "log to standard error what happens with nodes and locks"},
			// Not the library's own version flag: that is a variable of its
			// package, and so shared by everything in the process.
			&cli.BoolFlag{Name: flagVersion, Usage: "print the version", Local: true, HideDefault: true},
		),
		HideVersion:           true,
		HideHelpCommand:       true,
		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden = false
			c.Usage = "print a script that completes commands and flags in bash, zsh, fish or pwsh"
			c.OnUsageError = onUsageError
		},
		Commands: []*cli.Command{
			newRun(given),
			newInspect(given),
			newList(given),
			newWatch(given),
			newBreak(given),
			newCheck(given),
			newBench(given),
			newDemo(given),
		},
		Action: func(_ context.Context, c *cli.Command) error {
			switch {
			case c.Bool(flagVersion):
				_, err := fmt.Fprintln(c.Writer, "redlock "+version())
				return err
			case c.Args().Present():
				return usage("unknown command %q", c.Args().First())
			}
			return cli.ShowRootCommandHelp(c)
		},
		OnUsageError: onUsageError,
		// Errors are for run to report; nothing else may end the process.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
	}
}

const (
	flagJSON    = "json"
	flagVerbose = "verbose"
	flagVersion = "version"
)

// environ is an environment in the form of os.Environ.
type environ []string

// lookup returns the last value of a variable, as the C library does not but
// os/exec does.
func (e environ) lookup(key string) (string, bool) {
	for _, entry := range slices.Backward(e) {
		if name, value, ok := strings.Cut(entry, "="); ok && name == key {
			return value, true
		}
	}
	return "", false
}

// without returns the environment without some variables.
func (e environ) without(keys ...string) environ {
	return slices.DeleteFunc(slices.Clone(e), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(keys, name)
	})
}

// source makes a variable the source of a flag. An empty variable counts as
// not set.
func (e environ) source(key string) cli.ValueSource { return &envSource{e, key} }

type envSource struct {
	env environ
	key string
}

var _ cli.EnvValueSource = (*envSource)(nil)

func (s *envSource) Lookup() (string, bool) {
	value, _ := s.env.lookup(s.key)
	return value, value != ""
}

func (s *envSource) IsFromEnv() bool  { return true }
func (s *envSource) Key() string      { return s.key }
func (s *envSource) String() string   { return fmt.Sprintf("environment variable %q", s.key) }
func (s *envSource) GoString() string { return fmt.Sprintf("&envSource{key: %q}", s.key) }

// version says what was built, as far as the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	text := info.Main.Version
	if text == "" {
		text = "(devel)"
	}
	settings := make(map[string]string, len(info.Settings))
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	// A pseudo-version contains the revision already.
	if rev := settings["vcs.revision"]; len(rev) >= 12 && !strings.Contains(text, rev[:12]) {
		text += " " + rev[:12]
		if settings["vcs.modified"] == "true" {
			text += " (modified)"
		}
	}
	return text + " " + info.GoVersion
}
