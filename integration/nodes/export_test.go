package nodes

import (
	"context"
	"testing"

	"github.com/moby/moby/client"
)

// Detect returns what each kind of node would be started from here, or why it cannot be.
func Detect(ctx context.Context, kind Kind) (func(tb testing.TB, n int, opts ...Option) *Cluster, error) {
	c, err := choose(ctx, string(kind), probes{container: probeEngine, process: probeServer})
	if err != nil {
		return nil, err
	}
	return func(tb testing.TB, n int, opts ...Option) *Cluster {
		tb.Helper()
		return start(tb, c, n, opts...)
	}, nil
}

// ChooseWith runs the choice on a machine that has the given image and binary; an error stands for what it has
// not.
func ChooseWith(demanded, image string, noImage error, binary string, noBinary error) (Kind, string, error) {
	c, err := choose(context.Background(), demanded, probes{
		container: func(context.Context) (string, string, error) { return image, "image " + image, noImage },
		process:   func(context.Context) (string, string, error) { return binary, binary, noBinary },
	})
	return c.kind, c.String(), err
}

// Processes returns the process ids of the servers of a cluster of processes, and the directories of their
// files.
func (c *Cluster) Processes() map[int]string {
	processes := map[int]string{}
	for _, n := range c.nodes {
		if p := n.driver.(*process); p.alive() != nil {
			processes[p.alive().cmd.Process.Pid] = p.dir
		}
	}
	return processes
}

// ContainerIDs returns the ids of the containers of a cluster of containers.
func (c *Cluster) ContainerIDs() []string {
	var ids []string
	for _, n := range c.nodes {
		id, _ := n.driver.(*containerNode).id()
		ids = append(ids, id)
	}
	return ids
}

// ContainerExists asks the engine.
func ContainerExists(ctx context.Context, id string) (bool, error) {
	docker, err := connect(ctx)
	if err != nil {
		return false, err
	}
	defer docker.Close()
	_, err = docker.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil && isGone(err) {
		return false, nil
	}
	return err == nil, err
}

// ProcessIsGone says whether no process has the id, or only one that has ended and was not waited for.
func ProcessIsGone(pid int) bool {
	state, known := processState(pid)
	return !known || state == 'Z'
}

var (
	CanSweep     = canSweep
	OwnerIsGone  = ownerIsGone
	OwnerOf      = ownerOf
	ProcessBirth = processBirth
)
