package redlock

import (
	"sync"
	"time"
)

// Timers stand still while the machine sleeps, and the leases of locks do not.
// So as long as somebody waits for a lock to end, or to be renewed, a watch
// looks at the clock every lookEvery, and when more time has passed than can
// have, it makes every lock look, too.
const (
	lookEvery = time.Second
	slept     = lookEvery / 2
)

// watch makes locks look at the clock after the machine has slept.
type watch struct {
	locker *Locker
	wg     sync.WaitGroup // the goroutine

	mu      sync.Mutex // guards what follows
	locks   map[*Lock]struct{}
	running bool
}

// add is called with the lock's mutex held.
func (w *watch) add(k *Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locks == nil {
		w.locks = make(map[*Lock]struct{})
	}
	w.locks[k] = struct{}{}
	if !w.running && !w.locker.isClosed() {
		w.running = true
		w.wg.Go(w.look)
	}
}

// remove is called with the lock's mutex held.
func (w *watch) remove(k *Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.locks, k)
}

// wait waits for the goroutine, when the Locker is closed and none can start any
// more.
func (w *watch) wait() {
	w.mu.Lock() // whoever saw the Locker open has left it
	w.running = true
	w.mu.Unlock()
	w.wg.Wait()
}

// look runs while there are locks.
func (w *watch) look() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	last := w.locker.clock.Elapsed()
	for {
		select {
		case <-ticker.C:
		case <-w.locker.closing:
			return
		}
		now := w.locker.clock.Elapsed()
		locks, more := w.awake(now-last > lookEvery+slept)
		for _, k := range locks {
			k.tick()
		}
		if !more {
			return
		}
		last = now
	}
}

// awake returns the locks that must look, if the machine has slept, and
// whether to go on.
func (w *watch) awake(slept bool) (locks []*Lock, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.locks) > 0
	if slept {
		for k := range w.locks {
			locks = append(locks, k)
		}
	}
	return locks, w.running
}
