// Package proxy puts toxiproxy, as a library, between a client and its nodes, and lets the network in between
// fail; and it has servers that answer with nonsense.
//
// What package nodes does to a node, the node notices. What is done here, only the network does: a node runs
// on, executes what reaches it, and believes that it has answered.
//
// A [Proxy] has one fault at a time: each method that sets one ends the one before. Two of the faults differ
// only in their end: after [Proxy.Stall] everything that was held back arrives, late and in order, as it does
// when a cable is plugged in again and TCP repeats itself; after [Proxy.Drop] the connections that have lost
// something end, as TCP never delivers a stream with a gap.
//
// Toxiproxy leaves goroutines behind when a connection ends while a message is on its way through (its links have no
// end of their own). A test that looks for leaked goroutines has to look past functions of
// github.com/Shopify/toxiproxy.
package proxy
