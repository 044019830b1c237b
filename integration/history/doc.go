// Package history records what clients of a lock are told, and judges it against a model that knows nothing of
// nodes, quorums or time: there is one lock of each name, it is held by one claim at a time, and each claim's
// fencing number is larger than the one before.
//
// The judge is porcupine, which looks for an order of the operations that the model allows: each at some moment
// between its call and its return. An operation whose outcome nobody knows (a release that was not confirmed, a lock
// that was left to expire) stays open: it may have happened at any moment after its call. It never counts as done by
// its return, and never as not done.
package history
