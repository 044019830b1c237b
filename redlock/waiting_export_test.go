package redlock

// Lines returns how many queues of waiters there are.
func (l *Locker) Lines() int {
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	return len(l.queues.lines)
}

// Behind returns how many callers are queued, those who contend not counted.
func (l *Locker) Behind() int {
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	n := 0
	for _, line := range l.queues.lines {
		n += len(line.behind)
	}
	return n
}

// Watching reports whether the watch runs.
func (l *Locker) Watching() bool {
	l.watch.mu.Lock()
	defer l.watch.mu.Unlock()
	return l.watch.running
}
