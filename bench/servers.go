package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

// errNoServer says that this machine cannot start nodes.
var errNoServer = errors.New("there is no redis-server in PATH: install one, or name running nodes in REDLOCK_NODES")

// startPatience is how long a server may take to answer its first PING.
const startPatience = 10 * time.Second

// A cluster is a number of redis-server processes that this program started. They keep nothing on disk: what is
// compared here are clients.
type cluster struct {
	servers []*exec.Cmd
	addrs   []string
	dir     string
}

func startCluster(ctx context.Context, n int) (_ *cluster, err error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errNoServer
	}
	c := &cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "redlock-bench-"); err != nil {
		return nil, err
	}
	for range n {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(binary, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
			"--dir", c.dir, "--loglevel", "warning")
		isolate(cmd)
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		c.servers = append(c.servers, cmd)
		c.addrs = append(c.addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	for _, addr := range c.addrs {
		if err := awaitPing(ctx, addr); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// freePort returns a port that was free a moment ago. If another process takes it first, the server ends and the
// cluster does not start, which is seen; nothing is measured against a stranger, as its process holds the port.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func awaitPing(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		_, err := command(addr, "PING")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the redis-server at %s does not answer: %w", addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// command runs one command on one node, over a connection of its own.
func command(addr, name string, args ...any) (any, error) {
	conn, err := redis.Dial("tcp", addr, redis.DialConnectTimeout(nodeTimeout), redis.DialReadTimeout(startPatience),
		redis.DialWriteTimeout(nodeTimeout))
	if err != nil {
		return nil, err
	}
	reply, err := conn.Do(name, args...)
	return reply, errors.Join(err, conn.Close())
}

// hang stops the last n servers: their kernel goes on accepting connections, and nothing ever answers.
func (c *cluster) hang(n int) error {
	for _, cmd := range c.servers[len(c.servers)-n:] {
		if err := pause(cmd.Process); err != nil {
			return err
		}
	}
	return nil
}

// wake undoes hang, and waits until every server answers.
func (c *cluster) wake(ctx context.Context) error {
	for i, cmd := range c.servers {
		if err := resume(cmd.Process); err != nil {
			return err
		}
		if err := awaitPing(ctx, c.addrs[i]); err != nil {
			return err
		}
	}
	return nil
}

// close ends the servers. SIGKILL ends hung ones too, and there is nothing to lose.
func (c *cluster) close() error {
	var errs []error
	for _, cmd := range c.servers {
		errs = append(errs, cmd.Process.Kill())
		_ = cmd.Wait() // says that it was killed
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
