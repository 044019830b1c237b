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
	last, missed := w.locker.clock.Elapsed(), time.Duration(0)
	for {
		select {
		case <-ticker.C:
		case <-w.locker.closing:
			return
		}
		now := w.locker.clock.Elapsed()
		// Added up: many short sleeps are a long one. A tick that is late is
		// followed by one that is as much too early.
		missed = max(0, missed+now-last-lookEvery)
		last = now
		locks, more := w.awake(missed > slept)
		if missed > slept {
			missed = 0
		}
		for _, k := range locks {
			k.tick()
		}
		if !more {
			return
		}
	}
}

// awake returns the locks, if they must look because the machine has slept, and
// whether to go on.
func (w *watch) awake(look bool) (locks []*Lock, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = len(w.locks) > 0
	if look {
		for k := range w.locks {
			locks = append(locks, k)
		}
	}
	return locks, w.running
}
