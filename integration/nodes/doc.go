// Package nodes starts independent Redis nodes for tests and does to them what happens to nodes: they stop,
// die, hang, forget, and vanish from the network.
//
// A node is one of three kinds, and a test need not know which:
//
//   - [Container]: a container of the image REDLOCK_TEST_IMAGE, by testcontainers-go;
//   - [Process]: a redis-server of this machine;
//   - [Embedded]: a node of package redlocktest, in the memory of the test.
//
// REDLOCK_TEST_BACKEND (container, process or embedded) demands one kind, and then a machine that cannot have
// it fails the test: a skipped test would look like a passed one. Otherwise the first of the three that this
// machine can have is taken. [Start] prints once which kind it is, and why.
//
// What a kind cannot do is said by [Cluster.Supports], and a test that needs it begins with [Cluster.Require].
// Options that a kind cannot honour skip the test with the reason.
//
// Who owns what: a [Cluster] belongs to the test that started it, and its cleanup ends every node, whether the
// test passed, failed or panicked. For the ends that no cleanup sees (a crash of another goroutine, a test
// timeout, kill -9), processes ask the kernel to be killed with their parent (on Linux), and containers carry
// a label with their owner, by which the next run removes those whose owner is gone.
package nodes
