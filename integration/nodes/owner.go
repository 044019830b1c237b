package nodes

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// owner names this process so that it is told from every other, also from one with the same id later.
var owner = sync.OnceValue(func() string {
	birth, _ := processBirth(os.Getpid())
	return ownerOf(os.Getpid(), birth)
})

func ownerOf(pid int, birth string) string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s %d %s", host, pid, birth)
}

// ownerIsGone says whether the process that a label names has surely ended. Process ids of another host, or of
// another container, mean nothing here: such an owner counts as alive.
func ownerIsGone(label string) bool {
	fields := strings.Fields(label)
	host, _ := os.Hostname()
	if !canSweep || len(fields) != 3 || fields[0] != host {
		return false
	}
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		return false
	}
	birth, alive := processBirth(pid)
	return !alive || birth != fields[2]
}
