package redlock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// queues keeps the callers in this process that wait for the same lock in the
// order in which they came. Only the first of them speaks to the nodes: more
// would only take votes from each other.
type queues struct {
	mu    sync.Mutex // guards what follows
	lines map[string]*line
}

// line is the queue for one set of keys. Its head is whoever joined it when it
// was new, or was called since; behind is guarded by the queues' mutex, the rest
// belongs to the head.
type line struct {
	behind []chan struct{} // closed to call the next one to the head

	// ear is how the head hears of releases. It stays open while the line
	// exists, so that each head goes on hearing where the last one stopped.
	ear *ear
	// held is when the lock ends that the last head left with, unless it is
	// renewed; 0 if it left without.
	held time.Duration
	// outage says that the last attempt found no quorum, and since when none has.
	outage bool
	since  time.Duration
}

// join waits until the caller is the head of the line. It returns nil if ctx
// ended or stop was closed first; otherwise the caller must leave.
func (q *queues) join(ctx context.Context, key string, stop <-chan struct{}) *line {
	q.mu.Lock()
	l := q.lines[key]
	if l == nil {
		if q.lines == nil {
			q.lines = make(map[string]*line)
		}
		l = &line{}
		q.lines[key] = l
		q.mu.Unlock()
		return l
	}
	called := make(chan struct{})
	l.behind = append(l.behind, called)
	q.mu.Unlock()

	select {
	case <-called:
		return l
	case <-ctx.Done():
	case <-stop:
	}
	q.mu.Lock()
	i := slices.Index(l.behind, called)
	if i >= 0 {
		l.behind = slices.Delete(l.behind, i, i+1)
	}
	q.mu.Unlock()
	if i < 0 {
		// Called in the same moment: hand it on, the caller has given up.
		q.leave(key, l)
	}
	return nil
}

// leave calls the next in line.
func (q *queues) leave(key string, l *line) {
	q.mu.Lock()
	last := len(l.behind) == 0
	if last {
		delete(q.lines, key)
	} else {
		close(l.behind[0])
		l.behind = slices.Delete(l.behind, 0, 1)
	}
	q.mu.Unlock()
	if last && l.ear != nil {
		l.ear.close()
	}
}
