// Package conformance compares compat/redsync with redsync itself: what they export, what the same scenario comes to
// in both, and what redsync's own tests say to ours.
package conformance
