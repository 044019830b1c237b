//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package child

import (
	"context"
	"os/exec"
)

// Run returns [ErrUnsupported].
func Run(context.Context, *exec.Cmd, Options) (Result, error) { return Result{}, ErrUnsupported }

// Signals collects the signals that are meant for the command.
type Signals struct{}

// Listen returns [ErrUnsupported].
func Listen() (*Signals, error) { return nil, ErrUnsupported }

// Close does nothing here.
func (*Signals) Close() {}
