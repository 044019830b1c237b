package redlock

import (
	"context"
	"errors"
	"math"
	"sync"
)

// Mutex is a [sync.Locker], for code that wants one and cannot be changed. Where
// you can choose, use [Locker.Do]: a sync.Locker can neither say that there is
// no lock, nor that it was lost, nor be told to stop waiting.
//
//   - Lock waits for as long as it takes, through outages too: a program hangs
//     for as long as a majority of nodes is down.
//   - It panics where waiting is pointless: when the Locker has been closed, the
//     name or an option makes no sense, or a majority of nodes refuses for good,
//     as for a wrong password.
//   - The lock is renewed in the background while it is held, and can be lost
//     all the same. What runs under it is not told. Unlock then panics, for
//     others may have been at it meanwhile, and nobody would know.
//   - It is no faster than the network, and not reentrant.
//
// The value of such a panic is an error: [ErrClosed], [ErrConfig], [ErrNoQuorum]
// or [ErrLost]; and [ErrTaken] if WithMaxAttempts has bounded the waiting.
//
// [Locker.Mutex] makes one; the zero value is of no use. It is safe for
// concurrent use; goroutines that lock the same Mutex exclude each other. As
// with a [sync.Mutex], one may lock it and another unlock it.
type Mutex struct {
	locker *Locker
	name   string
	opts   []LockOption

	// inside is full from Lock to Unlock, also when the lock was lost meanwhile:
	// the next must not be unlocked by the one before.
	inside chan struct{}

	mu   sync.Mutex // guards what follows
	held *Lock
}

var _ sync.Locker = (*Mutex)(nil)

// Mutex returns a [Mutex] on name. Options are those of Acquire; WithAutoRenew is
// on unless they say otherwise, and WithMaxHold bounds for how long a goroutine
// that hangs keeps other Mutexes and processes out.
func (l *Locker) Mutex(name string, opts ...LockOption) *Mutex {
	waiting := []LockOption{WithAutoRenew(true), WithOutageTolerance(math.MaxInt64)}
	return &Mutex{locker: l, name: name, opts: append(waiting, opts...), inside: make(chan struct{}, 1)}
}

// Lock waits until the lock is held. See [Mutex] for when it panics.
func (m *Mutex) Lock() {
	select {
	case m.inside <- struct{}{}:
	case <-m.locker.closing:
		panic(ErrClosed)
	}
	k, err := m.locker.Acquire(context.Background(), m.name, m.opts...)
	if err != nil {
		<-m.inside
		panic(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = k
}

// Unlock releases the lock. It panics if the lock was lost before, or is not
// held.
func (m *Mutex) Unlock() {
	m.mu.Lock()
	k := m.held
	m.held = nil
	m.mu.Unlock()
	if k == nil {
		panic("redlock: unlock of a Mutex that is not locked")
	}
	defer func() { <-m.inside }()
	// A release that could not be confirmed is no matter: nobody else had the
	// lock, and it ends with its TTL.
	if err := k.Release(context.Background()); errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) {
		panic(err)
	}
}
