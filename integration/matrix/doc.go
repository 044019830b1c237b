// Package matrix tries the library under every fault that a real deployment meets: fault × operation × number of
// nodes that have it.
//
// What is expected is data, table.txt; a parser, one runner for all cells, and for each fault two functions, one
// that inflicts it on a node and one that heals it, are the code.
//
// The cells of one fault are tried together, in a round. Each number of affected nodes has a cluster of its own,
// and each operation a Locker and a lock of its own, made and used before the fault comes, since a fault that finds
// nothing open is the easy case. Then:
//
//  1. everything is set up, and the connections and goroutines that this takes are counted;
//  2. the fault is inflicted, and all operations run while it lasts; by its end, attempts say what is wrong, and where;
//  3. it is healed; whoever lives is tried once more; what is held is released;
//  4. within the patience of await, which is far less than the TTL, no node has a key left, and there are no more connections
//     and goroutines than before; then the Lockers are closed, and there is none.
//
// The clusters live for the whole run: what one round leaves behind turns the next one red.
package matrix
