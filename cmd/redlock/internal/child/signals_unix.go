//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals collects the signals that are meant for the command. Those that may
// end it are collected before there is one, so that none falls into a gap; the
// others have no meaning before, or their usual one, such as Ctrl-Z.
type Signals struct {
	c chan os.Signal
	// Nobody reads what comes here. That it is caught makes writing to a pipe
	// that has no reader an error for us, instead of our end in mid-command.
	pipe chan os.Signal
}

var (
	ending = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
	others = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP}
)

// Listen begins to collect signals. What was to be ignored when the program
// was started (nohup, a script's background jobs) stays ignored, by the
// command, too.
func Listen() (*Signals, error) {
	s := &Signals{
		c:    make(chan os.Signal, 64), // more than come before somebody looks
		pipe: make(chan os.Signal, 1),
	}
	signal.Notify(s.pipe, syscall.SIGPIPE)
	s.collect(ending)
	return s, nil
}

func (s *Signals) collect(signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(s.c, sig)
		}
	}
}

// Close gives the signals their usual effect again.
func (s *Signals) Close() {
	signal.Stop(s.c)
	signal.Stop(s.pipe)
}
