package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/redlock"
)

// Exit statuses. A subcommand that has others says so in its help.
const (
	exitOK     = 0
	exitFailed = 1 // what was asked for could not be done, or the answer is no
	exitUsage  = 2 // the command line makes no sense
)

// run is the whole program: args are all arguments, the program's name
// included, and env is in the form of os.Environ. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	root := newRoot(environ(env))
	root.Reader, root.Writer, root.ErrWriter = stdin, stdout, stderr
	err := root.Run(ctx, args)
	status, silent := exitStatus(err)
	if err != nil && !silent {
		text := "redlock: " + strings.TrimPrefix(err.Error(), "redlock: ")
		if status == exitUsage {
			text += "\nSee redlock --help."
		}
		_, _ = fmt.Fprintln(stderr, text) // the status says it, too
	}
	return status
}

func newRoot(env environ) *cli.Command {
	return &cli.Command{
		Name:  "redlock",
		Usage: "locks on a majority of independent Redis masters",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{
				Name:    flagNodes,
				Usage:   "the nodes, comma separated: host:port, redis://, rediss:// or unix://",
				Sources: cli.NewValueSourceChain(env.source("REDLOCK_NODES")),
			},
			// Not the library's own version flag: that is a variable of its
			// package, and so shared by everything in the process.
			&cli.BoolFlag{Name: flagVersion, Usage: "print the version", Local: true, HideDefault: true},
		},
		HideVersion:     true,
		HideHelpCommand: true,
		Commands: []*cli.Command{
			subcommand(newDemo(env)),
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
	flagNodes   = "nodes"
	flagVersion = "version"
)

// subcommand adds what all subcommands have in common.
func subcommand(c *cli.Command) *cli.Command {
	c.OnUsageError = onUsageError
	return c
}

// nodes returns the addresses of the nodes; none if none were named.
func nodes(c *cli.Command) []string {
	var addrs []string
	for _, addr := range c.StringSlice(flagNodes) {
		if addr = strings.TrimSpace(addr); addr != "" {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// exitError ends the program with a status of its own. Without a cause nothing
// is printed: the subcommand has said everything.
type exitError struct {
	status int
	cause  error
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func onUsageError(_ context.Context, _ *cli.Command, err error, _ bool) error {
	return &exitError{exitUsage, err}
}

func exitStatus(err error) (status int, silent bool) {
	var exit *exitError
	switch {
	case err == nil:
		return exitOK, true
	case errors.As(err, &exit):
		return exit.status, exit.cause == nil
	case errors.Is(err, redlock.ErrConfig):
		return exitUsage, false
	}
	return exitFailed, false
}

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
