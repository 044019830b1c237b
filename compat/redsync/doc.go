// Package redsync has the API of github.com/go-redsync/redsync/v4 on the locks
// of this module. To move a program over, change its import paths:
//
//	github.com/go-redsync/redsync/v4              → github.com/redquorum/go-redlock/compat/redsync
//	github.com/go-redsync/redsync/v4/redis        → github.com/redquorum/go-redlock/compat/redsync/redis
//	github.com/go-redsync/redsync/v4/redis/redigo → github.com/redquorum/go-redlock/compat/redsync/redis/redigo
//
// Keys and the way they are set, renewed and deleted are the same, so programs
// that have moved and programs that have not exclude each other.
//
// What a mutex does better for it: a node that hangs no longer holds calls up; an
// attempt that was cancelled or came too late leaves nothing behind; waiting
// ends with the release, not with the next poll; an expired lock is never
// extended into somebody else's. docs/migrating.md in the repository has the
// table of all differences.
//
// New programs should use [github.com/redquorum/go-redlock/redlock]: it renews
// by itself, tells when a lock is lost, and has fencing.
package redsync
