//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// terminal is the controlling terminal; nil if there is none. It sends what is
// typed (Ctrl-C, Ctrl-Z) to its foreground group, and stops who reads from it
// without being in that.
//
// The command's group gets the foreground when it first asks for it, by being
// stopped for reading: until then it stays with this process and with the rest
// of the pipeline that it may be part of, and Ctrl-C is passed on. So the
// command is told once, either way.
type terminal struct {
	fd   int
	home int  // our own process group
	lent bool // the foreground belongs to the command
}

func openTerminal() *terminal {
	fd, err := syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	// From the background, setting the foreground group would stop us, and so
	// would a message. Not before the command was started: it would inherit
	// this.
	signal.Ignore(syscall.SIGTTOU)
	return &terminal{fd: fd, home: syscall.Getpgrp()}
}

// close takes the foreground back from the group.
func (t *terminal) close(group int) {
	if t == nil {
		return
	}
	if t.foreground() == group {
		t.setForeground(t.home)
	}
	_ = syscall.Close(t.fd) // nothing was written
}

// foreground returns the foreground group, 0 if there is none to be had.
func (t *terminal) foreground() int {
	var group int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(t.fd), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	if errno != 0 {
		return 0
	}
	return int(group)
}

// setForeground has no error to return: if the terminal has gone, or the
// group, there is nothing to be set.
func (t *terminal) setForeground(group int) {
	id := int32(group)
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, uintptr(t.fd), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&id)))
}

// paused does what is to be done when a signal has stopped the command.
func (j *job) paused(by syscall.Signal) {
	t := j.tty
	switch {
	case t == nil:
		return // by somebody who will continue it
	case (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && t.foreground() == t.home:
		t.lent = true
	case by == syscall.SIGSTOP && t.foreground() != j.group:
		return
	default:
		j.suspend()
	}
	j.resume()
}

// suspension is longer than it takes to be stopped.
const suspension = 50 * time.Millisecond

// suspend stops this process and the rest of its group, as the terminal would
// have if the command had been among them: the shell wants its terminal back.
// It returns when somebody has continued us; or soon, if there is no such
// shell, for then the system does not stop us.
//
// Not by SIGTSTP: that is passed on, and the Go runtime keeps a signal that it
// has ever caught from having its own effect.
func (j *job) suspend() {
	_ = syscall.Kill(0, syscall.SIGTTIN) // we are there
	time.Sleep(suspension)
}

// resume continues the command, unless too much time has passed.
func (j *job) resume() {
	if !j.MayGoOn() {
		return
	}
	if j.tty.lent && j.tty.foreground() == j.tty.home {
		j.tty.setForeground(j.group)
	}
	j.send(syscall.SIGCONT)
}
