package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Kind is what the nodes are made of.
type Kind string

// The kinds of nodes; their values are those of [BackendVariable].
const (
	Container Kind = "container"
	Process   Kind = "process"
	Embedded  Kind = "embedded"
)

// The environment variables that choose the nodes.
const (
	// BackendVariable demands a [Kind]. Empty or unset leaves the choice to the machine.
	BackendVariable = "REDLOCK_TEST_BACKEND"

	// ImageVariable names the image of the containers.
	ImageVariable = "REDLOCK_TEST_IMAGE"
)

const (
	// OfficialImage is what the containers run unless [ImageVariable] says otherwise.
	OfficialImage = "redis:7.2-alpine"

	// LocalImage is what integration/image/build makes, where no registry can be reached. It is used without
	// being named when it is there and the official one is not: who built it wants to use it.
	LocalImage = "go-redlock-test/redis:local"
)

// probePatience bounds the search for a backend. It includes the download of an image.
const probePatience = 3 * time.Minute

// Backend returns the kind of nodes that [Start] starts. It fails when [BackendVariable] demands a kind that
// cannot be had here, or is not a kind.
func Backend() (Kind, error) {
	c, err := chosen()
	return c.kind, err
}

// Image returns the image that containers are made of; empty when [Start] starts other nodes.
func Image() (string, error) {
	c, err := chosen()
	return c.image, err
}

// Describe says in one line which kind of nodes [Start] starts, and why.
func Describe() (string, error) {
	c, err := chosen()
	if err != nil {
		return "", err
	}
	return c.String(), nil
}

// chosen looks at the machine once per process: a backend that came or went between two tests of one run would
// make their results incomparable.
var chosen = sync.OnceValues(func() (choice, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	return choose(ctx, os.Getenv(BackendVariable), probes{container: probeEngine, process: probeServer})
})

// announce prints the choice once per process; go test shows it under -v and when the package fails.
var announce = sync.OnceFunc(func() {
	if line, err := Describe(); err == nil {
		fmt.Fprintln(os.Stderr, line)
	}
})

// A choice is a backend and what is needed to start its nodes.
type choice struct {
	kind   Kind
	detail string // what the nodes are, precisely
	why    string
	image  string // of containers
	binary string // of processes
}

func (c choice) String() string {
	return fmt.Sprintf("integration backend: %s (%s), because %s", c.kind, c.detail, c.why)
}

// probes find out what the machine has. They are a parameter of choose for the sake of its test.
type probes struct {
	// container returns an image that containers can be made of, or why there is none.
	container func(context.Context) (image, detail string, err error)
	// process returns the path of a redis-server, or why there is none.
	process func(context.Context) (binary, detail string, err error)
}

// choose takes the backend that is demanded, or the most real one that can be had.
func choose(ctx context.Context, demanded string, p probes) (choice, error) {
	c := choice{why: fmt.Sprintf("%s=%s", BackendVariable, demanded)}
	var err error
	switch Kind(demanded) {
	case Container:
		c.kind = Container
		c.image, c.detail, err = p.container(ctx)
	case Process:
		c.kind = Process
		c.binary, c.detail, err = p.process(ctx)
	case Embedded:
		c.kind, c.detail = Embedded, embeddedDetail
	case "":
		return chooseFreely(ctx, p), nil
	default:
		err = fmt.Errorf("no such backend; use %s, %s or %s, or leave it empty", Container, Process, Embedded)
	}
	if err != nil {
		return choice{}, fmt.Errorf("nodes: %s=%s demands what cannot be had: %w", BackendVariable, demanded, err)
	}
	return c, nil
}

func chooseFreely(ctx context.Context, p probes) choice {
	image, detail, noContainer := p.container(ctx)
	if noContainer == nil {
		return choice{kind: Container, detail: detail, image: image, why: "a Docker engine answers and has the image"}
	}
	binary, detail, noProcess := p.process(ctx)
	if noProcess == nil {
		return choice{kind: Process, detail: detail, binary: binary, why: fmt.Sprintf("containers cannot be had: %s", oneLine(noContainer))}
	}
	return choice{
		kind: Embedded, detail: embeddedDetail,
		why: fmt.Sprintf("neither containers nor processes can be had: %s; %s", oneLine(noContainer), oneLine(noProcess)),
	}
}

const embeddedDetail = "in memory, package redlocktest"

// errUnsupported is what a driver returns for a fault that its kind cannot have.
var errUnsupported = errors.New("this kind of node cannot do that")
