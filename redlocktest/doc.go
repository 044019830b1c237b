// Package redlocktest runs a cluster of Redis nodes inside the test process,
// and breaks them on demand.
//
// [Start] gives a test its nodes; their addresses go to whatever is under
// test, and every [Node] can be stopped, restarted with or without its data,
// hung, slowed, made to fail, or cut off in one direction:
//
//	cluster := redlocktest.Start(t, 5)
//	locker, err := redlock.New(cluster.Addrs())
//	...
//	cluster.Node(0).Stop()
//	cluster.Node(1).Hang()
//
// # Virtual time
//
// Sockets do not work inside a [testing/synctest] bubble. [StartPiped], called
// inside the bubble, makes a cluster without any: its connections live in
// memory, [Cluster.Dial] makes them, and keys expire on the bubble's clock. Ten
// seconds of TTL then take no time at all, and end on the nanosecond.
//
//	synctest.Test(t, func(t *testing.T) {
//		cluster := redlocktest.StartPiped(t, 5)
//		locker, err := redlock.New(cluster.Addrs(),
//			redlock.WithDialer(cluster.Dial), redlock.WithClock(clock.Monotonic()))
//		...
//		time.Sleep(10 * time.Second)
//	})
//
// # What an embedded node is, and is not
//
// A node is [github.com/alicebob/miniredis/v2] behind a front of this package
// that reads commands, holds them up, and sends the answers. It executes the
// commands that a lock needs, Lua scripts and pub/sub included, and answers
// INFO with a run id and an uptime that begin anew with every start.
//
// It is not Redis. It writes nothing to disk: [Node.Restart] keeps the data
// because it never left memory. It has no ACL, no replication, no memory limit
// and no eviction; [Node.SetError] can imitate the errors that those give, but
// not when a server gives them. Its Lua comes from another interpreter. Each
// command that a script calls reads the clock afresh, so a key can expire in
// the middle of a script, which Redis rules out. What must be known about
// Redis itself has to be asked of real servers.
package redlocktest
