//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package child

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Run starts cmd in a process group of its own and returns when it has ended.
//
// When ctx ends first, the whole group gets SIGTERM, and what is left of it
// after the grace period SIGKILL; Run returns when all of it has ended. If the
// command ends by itself, what it has left in the background is left alone.
//
// It returns an error if the command could not be started.
func Run(ctx context.Context, cmd *exec.Cmd, o Options) (Result, error) {
	// The kernel takes the end of the thread that has started the command for
	// the end of the parent; see dieWithParent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	o.Signals.collect(others)
	if err := cmd.Start(); err != nil {
		return Result{}, err
	}
	j := &job{Options: o, group: cmd.Process.Pid}
	j.tty = openTerminal()
	defer j.tty.close(j.group)
	return j.attend(ctx, cmd), nil
}

// job is a process group and what it is owed.
type job struct {
	Options
	group int // the id of the process group, and of its leader
	tty   *terminal
}

const (
	// poll is how often to look whether what the command has started is gone.
	poll = 10 * time.Millisecond
	// reaping is how long the dead may stay in the group. Who has no parent
	// any more is buried by process 1, which in a container may be anything.
	reaping = time.Second
)

// attend waits for the end of the job.
func (j *job) attend(ctx context.Context, cmd *exec.Cmd) Result {
	changes := make(chan change)
	go watch(cmd, changes)
	var (
		result Result
		ended  bool // the command; there may be more in the group
		lost   = ctx.Done()
		kill   <-chan time.Time
		gone   <-chan time.Time
		giveUp <-chan time.Time
	)
	for {
		select {
		case c := <-changes:
			if !c.ended {
				j.paused(c.signal)
				continue
			}
			ended = true
			result.Status = status(cmd.ProcessState)
			if !result.Stopped {
				return result
			}
			gone = time.After(0)
		case s := <-j.Signals.c:
			j.pass(s)
		case <-lost:
			lost = nil
			result.Stopped = true
			j.send(syscall.SIGTERM)
			j.send(syscall.SIGCONT) // who is stopped does not hear the other
			kill = time.After(j.Grace)
		case <-kill:
			j.send(syscall.SIGKILL)
			giveUp = time.After(reaping)
		case <-gone:
			if j.gone() {
				return result
			}
			gone = time.After(poll)
		case <-giveUp:
			// SIGKILL cannot be refused, only delayed by the kernel: for the
			// command itself that is waited for.
			if ended {
				return result
			}
		}
	}
}

// pass passes a signal on. Those that a terminal or a supervisor would send to
// a whole job go to the group: a shell that alone is terminated would leave
// behind what it has just started. The rest means something to the command
// only.
func (j *job) pass(s os.Signal) {
	switch s {
	case syscall.SIGUSR1, syscall.SIGUSR2:
		j.sendTo(j.group, s.(syscall.Signal))
	case syscall.SIGCONT:
		// Ours, too, after a suspension.
		if j.MayGoOn() {
			j.send(syscall.SIGCONT)
		}
	default:
		j.send(s.(syscall.Signal))
	}
}

// send sends a signal to the whole group.
func (j *job) send(s syscall.Signal) { j.sendTo(-j.group, s) }

func (j *job) sendTo(id int, s syscall.Signal) {
	err := syscall.Kill(id, s)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		j.Trouble(os.NewSyscallError("kill with "+s.String(), err))
	}
}

// gone says whether nobody is left in the group. The command itself has been
// waited for, so its id could be somebody else's as soon as the group is
// empty; but the system gives out all other ids before it does one again.
func (j *job) gone() bool {
	for {
		// Orphans are ours to bury if this is process 1.
		pid, err := syscall.Wait4(-j.group, nil, syscall.WNOHANG, nil)
		if err != nil || pid == 0 {
			break
		}
	}
	return syscall.Kill(-j.group, 0) != nil
}

// change is what has happened to the command: it has ended, or a signal has
// stopped it.
type change struct {
	ended  bool
	signal syscall.Signal
}

// watch sends the changes, the end as the last.
func watch(cmd *exec.Cmd, changes chan<- change) {
	for {
		signal, stopped := awaitStop(cmd.Process.Pid)
		if !stopped {
			break
		}
		changes <- change{signal: signal}
	}
	_ = cmd.Wait() // the state says more than the error
	changes <- change{ended: true}
}

func status(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}
