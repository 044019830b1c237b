package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"

	"github.com/redquorum/go-redlock/integration/internal/port"
)

const (
	// redisPort is where the server listens inside of its container.
	redisPort = 6379

	// hostOverride is where testcontainers learns at which host published ports are.
	hostOverride = "TESTCONTAINERS_HOST_OVERRIDE"

	// ownerLabel says which process a container belongs to; see owner.
	ownerLabel = "com.github.redquorum.go-redlock.owner"

	// confPath is where the configuration is inside of a container, and certsPath the certificates.
	certsPath = "/etc"
	confPath  = certsPath + "/redlock.conf"

	// stopPatience is what a server gets to end in the orderly way before the engine kills it.
	stopPatience = 10 * time.Second
)

// prepareTestcontainers sets what testcontainers reads from the environment, once and early, as it reads it
// once. What the caller has set stands.
var prepareTestcontainers = sync.OnceFunc(func() {
	// The reaper of testcontainers is a container of an image of its own, which cannot be had where no registry
	// can be reached. The sweep below does its work.
	if os.Getenv("TESTCONTAINERS_RYUK_DISABLED") == "" {
		_ = os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	}
	// Its greeting and its notes on every step; what matters comes back as an error.
	tclog.SetDefault(tclog.NewNoopLogger())
})

// probeEngine looks for a Docker engine, and for an image that it has or can get.
func probeEngine(ctx context.Context) (image, detail string, err error) {
	prepareTestcontainers()
	docker, err := connect(ctx)
	if err != nil {
		return "", "", fmt.Errorf("no Docker engine answers: %w", err)
	}
	defer docker.Close()
	version, err := docker.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return "", "", fmt.Errorf("no Docker engine answers: %w", err)
	}

	image = os.Getenv(ImageVariable)
	named := image != ""
	if !named {
		image = OfficialImage
	}
	_, absent := docker.ImageInspect(ctx, image)
	if absent != nil && !named {
		if _, err := docker.ImageInspect(ctx, LocalImage); err == nil {
			image, absent = LocalImage, nil
		}
	}
	if absent != nil {
		if err := pull(ctx, docker, image); err != nil {
			return "", "", fmt.Errorf("the Docker engine has no image %s and cannot get it: %w (make image builds one without a registry)", image, err)
		}
	}
	return image, fmt.Sprintf("image %s, Docker engine %s", image, version.Version), nil
}

// connect also turns the panics of testcontainers, which it has for some engines that do not answer, into errors.
func connect(ctx context.Context) (docker *testcontainers.DockerClient, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("testcontainers: %v", r)
		}
	}()
	return testcontainers.NewDockerClientWithOpts(ctx)
}

func pull(ctx context.Context, docker *testcontainers.DockerClient, image string) error {
	reply, err := docker.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer reply.Close()
	return reply.Wait(ctx)
}

// publishing says where the engine shall publish ports, and where this process finds them.
//
// An engine at the other end of a local socket publishes on the loopback address, and is looked for there, also
// inside of something that looks like a container: testcontainers would then try the default gateway, which in
// a sandbox is a stranger. A real container beside the engine has to say where the engine's machine is, by
// TESTCONTAINERS_HOST_OVERRIDE. An engine reached by TCP publishes on all its addresses, and is found at the one
// that DOCKER_HOST names.
func publishing(docker *testcontainers.DockerClient, loopback string) (bind, host string, err error) {
	if override := os.Getenv(hostOverride); override != "" && override != "localhost" {
		return "0.0.0.0", override, nil
	}
	engine, err := url.Parse(docker.DaemonHost())
	if err != nil {
		return "", "", err
	}
	switch engine.Scheme {
	case "tcp", "http", "https":
		return "0.0.0.0", engine.Hostname(), nil
	default:
		return loopback, loopback, os.Setenv(hostOverride, "localhost") // so that testcontainers agrees
	}
}

// sweep removes the containers of runs that ended without a cleanup.
func sweep(ctx context.Context, docker *testcontainers.DockerClient) error {
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: client.Filters{}.Add("label", ownerLabel),
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list.Items {
		if !ownerIsGone(c.Labels[ownerLabel]) {
			continue
		}
		_, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{RemoveVolumes: true, Force: true})
		// Somebody else's sweep may be at it, too.
		if err != nil && !isGone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// isGone says whether an error of the engine's is about a container that is removed or being removed.
func isGone(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "no such container") || strings.Contains(text, "is already in progress")
}

// startContainers starts n servers. The cleanup of the test removes them.
func startContainers(tb testing.TB, image string, conf *config, n int) ([]driver, error) {
	tb.Helper()
	prepareTestcontainers()
	ctx, cancel := context.WithTimeout(tb.Context(), startPatience)
	defer cancel()
	docker, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _ = docker.Close() })
	if err := sweep(ctx, docker); err != nil {
		return nil, fmt.Errorf("remove the containers of earlier runs: %w", err)
	}
	bind, host, err := publishing(docker, conf.host())
	if err != nil {
		return nil, err
	}
	drivers := make([]driver, n)
	err = parallel(n, func(i int) error {
		c := &containerNode{docker: docker, image: image, config: conf, bind: bind, host: host}
		tb.Cleanup(func() {
			if err := c.remove(); err != nil {
				tb.Errorf("nodes: %v", err)
			}
		})
		drivers[i] = c
		return port.On(tb, bind, func(number int) error {
			c.port = number
			return c.create(ctx)
		})
	})
	return drivers, err
}

// A containerNode is a redis-server in a container, at a fixed port of the engine's machine: a port that the
// engine chose would be another one after every start.
type containerNode struct {
	docker *testcontainers.DockerClient
	image  string
	config *config
	bind   string // the address that the port is published on
	host   string // the address that we find it at
	port   int

	mu        sync.Mutex // guards the rest: the server may be asked about while something is done to it
	container testcontainers.Container
	paused    bool
}

var _ driver = (*containerNode)(nil)

func (c *containerNode) addr() string { return hostPort(c.host, c.port) }

// create makes the container and starts it.
func (c *containerNode) create(ctx context.Context) error {
	bind, err := netip.ParseAddr(c.bind)
	if err != nil {
		return err
	}
	published, _ := network.PortFrom(redisPort, network.TCP)
	text := c.config.redisConf(place{port: redisPort, bind: "* -::*", dir: "/data", certs: certsPath})
	files := []testcontainers.ContainerFile{readable(confPath, []byte(text))}
	if c.config.authority != nil {
		for name, content := range c.config.authority.files {
			files = append(files, readable(certsPath+"/"+name, content))
		}
	}
	created, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{
			Image:        c.image,
			Cmd:          []string{"redis-server", confPath},
			ExposedPorts: []string{published.String()},
			Files:        files,
			Labels:       map[string]string{ownerLabel: owner()},
			HostConfigModifier: func(host *container.HostConfig) {
				host.PortBindings = network.PortMap{published: {{HostIP: bind, HostPort: strconv.Itoa(c.port)}}}
			},
		},
		Started: true,
	})
	// A container that was made but did not start comes with the error, and has to be removed all the same.
	c.setContainer(created)
	if err == nil {
		return nil
	}
	if text := err.Error(); strings.Contains(text, "already allocated") || strings.Contains(text, "already in use") {
		return errors.Join(port.ErrTaken, err, c.remove())
	}
	return err
}

// readable is a file that any user of the container may read: official images do not run as root.
func readable(path string, content []byte) testcontainers.ContainerFile {
	return testcontainers.ContainerFile{Reader: bytes.NewReader(content), ContainerFilePath: path, FileMode: 0o644}
}

func (c *containerNode) setContainer(created testcontainers.Container) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.container, c.paused = created, false
}

func (c *containerNode) setPaused(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
}

// id is empty when there is no container.
func (c *containerNode) id() (id string, paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.container == nil {
		return "", false
	}
	return c.container.GetContainerID(), c.paused
}

// remove removes the container and its data, in whatever state it is.
func (c *containerNode) remove() error {
	// Its own context: whatever made the removal necessary may have ended the caller's.
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	c.mu.Lock()
	gone := c.container
	c.mu.Unlock()
	if gone == nil {
		return nil
	}
	if err := c.thaw(ctx); err != nil {
		return err
	}
	if err := gone.Terminate(ctx, testcontainers.StopTimeout(0)); err != nil && !isGone(err) {
		return err
	}
	c.setContainer(nil)
	return nil
}

// thaw resumes a paused container: engines of some versions refuse to end one.
func (c *containerNode) thaw(ctx context.Context) error {
	if _, paused := c.id(); !paused {
		return nil
	}
	return c.resume(ctx)
}

func (c *containerNode) start(ctx context.Context) error {
	id, _ := c.id()
	if id == "" {
		return c.create(ctx)
	}
	_, err := c.docker.ContainerStart(ctx, id, client.ContainerStartOptions{})
	return err
}

func (c *containerNode) stop(ctx context.Context) error {
	if err := c.thaw(ctx); err != nil {
		return err
	}
	id, _ := c.id()
	seconds := int(stopPatience.Seconds())
	_, err := c.docker.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &seconds})
	return err
}

func (c *containerNode) kill(ctx context.Context) error {
	id, _ := c.id()
	_, err := c.docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
	if err != nil && strings.Contains(err.Error(), "is not running") {
		return nil // dead is dead
	}
	c.setPaused(false)
	return err
}

// wipe removes the container; start makes a new one. The image may have no shell to remove files with.
func (c *containerNode) wipe(context.Context) error { return c.remove() }

func (c *containerNode) pause(ctx context.Context) error {
	id, _ := c.id()
	if _, err := c.docker.ContainerPause(ctx, id, client.ContainerPauseOptions{}); err != nil {
		return err
	}
	c.setPaused(true)
	return nil
}

func (c *containerNode) resume(ctx context.Context) error {
	id, _ := c.id()
	if _, err := c.docker.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{}); err != nil {
		return err
	}
	c.setPaused(false)
	return nil
}

func (c *containerNode) disconnect(ctx context.Context) error {
	id, _ := c.id()
	_, err := c.docker.NetworkDisconnect(ctx, testcontainers.Bridge, client.NetworkDisconnectOptions{Container: id})
	return err
}

func (c *containerNode) reconnect(ctx context.Context) error {
	id, _ := c.id()
	_, err := c.docker.NetworkConnect(ctx, testcontainers.Bridge, client.NetworkConnectOptions{Container: id})
	return err
}

// owns asks the engine, as the port of a container is the engine's while the container runs: no stranger can
// answer there.
func (c *containerNode) owns(int) error {
	id, _ := c.id()
	if id == "" {
		return errEnded
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	inspect, err := c.docker.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	if state := inspect.Container.State; state != nil && !state.Running {
		return fmt.Errorf("%w: container %.12s is %s with exit code %d", errEnded, id, state.Status, state.ExitCode)
	}
	return nil
}

func (c *containerNode) log() string {
	id, _ := c.id()
	if id == "" {
		return "no container"
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	logs, err := c.docker.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "15"})
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	var text bytes.Buffer
	if _, err := stdcopy.StdCopy(&text, &text, io.LimitReader(logs, 64<<10)); err != nil {
		return err.Error()
	}
	return tail(text.String())
}
