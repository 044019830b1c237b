// Package sim is a cluster of simulated nodes, fast enough for a hundred
// thousand histories of the real library in virtual time.
//
// Package redlocktest runs the Lua itself, which takes milliseconds a history
// does not have. A [Store] says in Go what the scripts say in Lua; its test
// compares the two call by call. A [Node] speaks RESP over connections in
// memory, and fails in the ways that nodes and networks do: it stops and comes
// back, hangs, loses commands or replies, and executes old bytes of connections
// that were given up long ago.
//
// Everything that is random here comes from the seed of the [Cluster]: the
// n-th packet on a client's m-th connection to a node always takes as long.
package sim
