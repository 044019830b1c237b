// Package redlock holds distributed locks on a majority of N independent Redis
// masters, so that the loss of a minority of them, or the failover of one,
// cannot hand a lock to two owners. It is the Redlock algorithm of the Redis
// page "Distributed Locks with Redis"; a single node makes a careful
// single-master lock.
//
//	locker, err := redlock.New([]string{"redis1:6379", "redis2:6379", "redis3:6379"})
//	...
//	defer locker.Close()
//	err = locker.Do(ctx, "invoices", func(ctx context.Context, lock *redlock.Lock) error {
//		return sendInvoices(ctx) // ctx ends if the lock is lost
//	})
//
// [Locker.Do] is the recommended way: it renews the lock while the function
// runs, tells it when the lock is lost, and releases it whatever happens.
// [Locker.Acquire] and [Locker.TryAcquire] give the [Lock] itself, and
// [Locker.Mutex] a sync.Locker.
//
// # Algorithm
//
// An attempt draws a new random token, reads the clock, and asks all nodes at
// once to set the lock's key to the token, if it is free, with an expiry (the
// TTL). The lock is held if a quorum of ⌊N/2⌋+1 of the configured nodes
// granted, for
//
//	validity = TTL − time since the clock was read − (TTL × drift factor + 2 ms)
//
// and not at all if that is below the minimum validity. A failed attempt is
// undone on every node that may have granted it. Renewing and releasing
// compare the token and act in one step on the node. The wire format is the
// page's own, so locks of ours and of other libraries that follow the page
// exclude each other.
//
// # What it assumes
//
//  1. Clock rates of nodes and client differ by less than [WithDriftFactor]. No
//     clock needs to show the right time, but Redis expires keys by its wall
//     clock: a node's must not be set forwards by more than the drift.
//  2. A node does not forget a lock that it granted before the TTL is over: it
//     syncs every write to disk, or does not come back for a TTL
//     ([WithRestartGuard] sees to that), and evicts no lock keys. Nodes are
//     masters without replicas that could take over.
//  3. All clients agree on the list of nodes and on the key prefix.
//
// Under these, no two locks on one name are within their validity at the same
// time. Networks may lose, delay and reorder what they like, and any number of
// nodes and clients may stop, hang or come back at any time.
//
// # What the caller owes
//
//  1. Work under a lock stops when the lock is lost: watch [Lock.Context] or
//     [Lock.Done], or ask [Lock.Validity] before each step.
//  2. A process that was paused finds out only by looking. Where a late write
//     would do harm, use [WithFencing] and let the resource refuse old
//     numbers.
//  3. Release every lock, and Close every Locker.
//
// # What it does not do
//
// Validity is a lease, not a promise about your code: between looking at it
// and acting, any amount of time may pass. Locks are neither reentrant nor
// fair between processes. A lock survives the loss of a minority of nodes for
// as long as it is renewed, but no lock can be acquired while a majority is
// unreachable. If you need more than this, you need a consensus store, and
// still fencing.
//
// # Looking after locks
//
// [Locker.Inspect], [Locker.List] and [Locker.Watch] show who holds what, and
// what becomes of it; [Locker.Break] takes a lock from a holder that is dead;
// [Locker.Check] says whether the nodes are fit for locks. [WithObserver] and
// [WithLogger] tell what the Locker itself does.
//
// # Errors
//
// Outcomes are sentinels to be tested with errors.Is: [ErrTaken],
// [ErrNoQuorum], [ErrLost], [ErrReleased], [ErrClosed], [ErrConfig]. Details
// are in [QuorumError], which names every node and what it said.
package redlock
