package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/go-redlock/integration/internal/port"
)

// probeServer looks for a redis-server that runs.
func probeServer(ctx context.Context) (binary, detail string, err error) {
	if !processesSupported {
		return "", "", fmt.Errorf("processes are not supported on %s", runtime.GOOS)
	}
	binary, err = exec.LookPath("redis-server")
	if err != nil {
		return "", "", errors.New("no redis-server in PATH (on Debian: apt-get install redis-server)")
	}
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s does not run: %w", binary, err)
	}
	version := "of unknown version"
	for word := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			version = v
		}
	}
	return binary, fmt.Sprintf("%s, version %s", binary, version), nil
}

// startProcesses starts n servers. The cleanup of the test ends them.
func startProcesses(tb testing.TB, binary string, conf *config, n int) ([]driver, error) {
	tb.Helper()
	if err := sweepDirs(); err != nil {
		return nil, fmt.Errorf("remove the files of earlier runs: %w", err)
	}
	dir, err := os.MkdirTemp("", dirPrefix) //nolint:usetesting // a Unix socket's path must fit into 100 bytes; test names are sentences
	if err != nil {
		return nil, err
	}
	// Cleanups run last first: servers end, then the goroutine that started them, then their files go.
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("nodes: %v", err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(owner()), 0o600); err != nil {
		return nil, err
	}
	parent := newParent()
	tb.Cleanup(parent.close)

	drivers := make([]driver, n)
	err = parallel(n, func(i int) error {
		p := &process{binary: binary, dir: filepath.Join(dir, fmt.Sprint(i)), config: conf, parent: parent}
		tb.Cleanup(func() {
			if err := p.end(); err != nil {
				tb.Errorf("nodes: %v", err)
			}
		})
		drivers[i] = p
		return p.create(tb)
	})
	return drivers, err
}

// The directories of processes begin with dirPrefix, and hold a file that says whose they are; see owner.
const (
	dirPrefix = "redlock-nodes-"
	ownerFile = "owner"
)

// sweepDirs removes the directories of runs that ended without a cleanup. Their servers the kernel has killed.
func sweepDirs() error {
	owners, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*", ownerFile))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range owners {
		// Unreadable means that it is somebody else's, or gone meanwhile.
		label, err := os.ReadFile(path)
		if err == nil && ownerIsGone(string(label)) {
			errs = append(errs, os.RemoveAll(filepath.Dir(path)))
		}
	}
	return errors.Join(errs...)
}

// A process is a redis-server on this machine.
type process struct {
	binary string
	dir    string // the server's files, and nobody else's
	config *config
	parent *parent
	port   int

	mu sync.Mutex // guards run: the server may be asked about while it is started or ended
	// run is the latest run of the server; nil before the first.
	run *run
}

var _ driver = (*process)(nil)

// A run is one life of a server process.
type run struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended and was waited for
	err   error         // how it ended; valid once ended is closed
}

// create starts the server for the first time, on a port that it alone has.
func (p *process) create(tb testing.TB) error {
	tb.Helper()
	if p.config.unixSocket {
		return p.createOn(0)
	}
	return port.On(tb, p.config.host(), p.createOn)
}

func (p *process) createOn(number int) error {
	p.port = number
	if err := os.MkdirAll(p.data(), 0o700); err != nil {
		return err
	}
	if p.config.authority != nil {
		for name, content := range p.config.authority.files {
			if err := os.WriteFile(filepath.Join(p.dir, name), content, 0o600); err != nil {
				return err
			}
		}
	}
	text := p.config.redisConf(place{
		port:           number,
		bind:           p.config.host(),
		dir:            p.data(),
		certs:          p.dir,
		unixSocketPath: p.socket(),
	})
	if err := os.WriteFile(p.file("redis.conf"), []byte(text), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	if err := p.start(ctx); err != nil {
		return err
	}
	// Only the server itself can tell whether it got the port, so its first answer is awaited here.
	err := awaitAnswer(ctx, p.config, p)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, p.log())
		if strings.Contains(p.log(), "in use") {
			err = errors.Join(port.ErrTaken, err, p.end(), os.RemoveAll(p.dir))
		}
	}
	return err
}

func (p *process) file(name string) string { return filepath.Join(p.dir, name) }
func (p *process) data() string            { return p.file("data") }
func (p *process) socket() string          { return p.file("s") }

func (p *process) addr() string {
	if p.config.unixSocket {
		return p.socket()
	}
	return hostPort(p.config.host(), p.port)
}

func (p *process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// alive returns the run that goes on, or nil.
func (p *process) alive() *run {
	r := p.current()
	if r == nil {
		return nil
	}
	select {
	case <-r.ended:
		return nil
	default:
		return r
	}
}

func (p *process) start(context.Context) error {
	if p.alive() != nil {
		return errors.New("it is running")
	}
	out, err := os.OpenFile(p.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own
	cmd := exec.Command(p.binary, p.file("redis.conf"))
	cmd.Dir = p.data()
	cmd.Stdout, cmd.Stderr = out, out
	isolate(cmd)
	if err := p.parent.start(cmd); err != nil {
		return err
	}
	r := &run{cmd: cmd, ended: make(chan struct{})}
	// Ends with the process, which end() makes sure of and waits for.
	go func() {
		defer close(r.ended)
		r.err = cmd.Wait()
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run = r
	return nil
}

func (p *process) stop(ctx context.Context) error {
	r := p.alive()
	if r == nil {
		return errEnded
	}
	// A paused process does not see SIGTERM before it is resumed.
	return errors.Join(r.signal(sigTerm), r.signal(sigCont), r.wait(ctx))
}

func (p *process) kill(ctx context.Context) error {
	r := p.alive()
	if r == nil {
		return nil // dead is dead: what killed it does not matter
	}
	return errors.Join(r.signal(sigKill), r.wait(ctx))
}

// end kills whatever runs, and returns when it is gone. SIGKILL cannot be ignored, so it needs no bound but
// that of a kernel in trouble.
func (p *process) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	return p.kill(ctx)
}

func (p *process) wipe(context.Context) error {
	if err := os.RemoveAll(p.data()); err != nil {
		return err
	}
	return os.Mkdir(p.data(), 0o700)
}

func (p *process) pause(ctx context.Context) error {
	r := p.alive()
	if r == nil {
		return errEnded
	}
	if err := r.signal(sigStop); err != nil {
		return err
	}
	return r.awaitPaused(ctx)
}

func (p *process) resume(context.Context) error {
	r := p.alive()
	if r == nil {
		return errEnded
	}
	return r.signal(sigCont)
}

func (p *process) disconnect(context.Context) error { return errUnsupported }
func (p *process) reconnect(context.Context) error  { return errUnsupported }

func (p *process) owns(processID int) error {
	r := p.alive()
	if r == nil {
		return errEnded
	}
	if processID != 0 && processID != r.cmd.Process.Pid {
		return fmt.Errorf("process %d answers at %s, not ours, which is %d", processID, p.addr(), r.cmd.Process.Pid)
	}
	return nil
}

func (p *process) log() string {
	text, err := os.ReadFile(p.file("log"))
	if err != nil {
		return err.Error()
	}
	return tail(string(text))
}

func (r *run) wait(ctx context.Context) error {
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d has not ended: %w", r.cmd.Process.Pid, ctx.Err())
	}
}

// awaitPaused waits until the kernel has stopped the process, where it can be asked: kill returns earlier.
func (r *run) awaitPaused(ctx context.Context) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		if state, known := processState(r.cmd.Process.Pid); !known || state == 'T' {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// A parent starts processes from one operating system thread that outlives them. The kernel's promise to kill
// a child with its parent (Pdeathsig) is about the thread that started it, and the Go runtime ends threads
// when it likes; this one is locked to a goroutine that lives until close.
type parent struct {
	starts chan func()
	ended  chan struct{}
}

func newParent() *parent {
	p := &parent{starts: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for start := range p.starts {
			start()
		}
	}()
	return p
}

func (p *parent) start(cmd *exec.Cmd) error {
	result := make(chan error)
	p.starts <- func() { result <- cmd.Start() }
	return <-result
}

// close must not be called before the last start has returned.
func (p *parent) close() {
	close(p.starts)
	<-p.ended
}
