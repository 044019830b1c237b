// Package redlockprom shows Prometheus what a [redlock.Locker] does, and how far
// its nodes are from having no quorum.
//
// A [Collector] stands for one Locker. It is made first, for it observes the
// Locker from the beginning; then the Locker is given to it, for some figures
// have to be asked for:
//
//	metrics := redlockprom.New("orders")
//	prometheus.MustRegister(metrics)
//	locker, err := redlock.New(addrs, redlock.WithObserver(metrics))
//	...
//	metrics.Track(locker)
//
// Several Lockers have a Collector each, with different names, and may share a
// registry. Alert rules (alerts.yml) and a Grafana dashboard (dashboard.json) lie
// beside this file; docs/alerts.md says what to do about each alert.
//
// # Metrics
//
// All have the label locker. Those about locks have the label name too, which is
// empty, and so does not exist for Prometheus, without [WithNames].
//
//	redlock_acquisitions_total{name,result}      calls of Acquire and its kin that ended: acquired, taken, no_quorum, given_up, lost, closed, error
//	redlock_wait_seconds{name}                   how long these calls took, whatever came of them
//	redlock_attempts_total{result}               single attempts; many for one acquisition mean contention
//	redlock_renewals_total{name,result}          renewed, no_quorum, lost, error
//	redlock_releases_total{name,result}          released, no_quorum, lost, error
//	redlock_locks_lost_total{name,reason}        expired, max_hold, deleted, stolen; found_at_release: so late was it found
//	redlock_hold_seconds{name}                   from acquisition to release or loss
//	redlock_release_validity_seconds{name}       validity left when a lock was released; 0 if it had been lost
//	redlock_operation_seconds{operation}         acquire (one attempt), renew, release: from the first byte until the outcome was certain
//	redlock_fencing_tokens_total{round_trips}    fencing tokens, by the round trips that they took: 1 or 2
//	redlock_reclaims_pending                     votes and releases that are still to be undone or done again
//	redlock_reclaims_total{node,result}          those that no longer are: undone, expired
//	redlock_votes_total{node,vote}               granted, refused, failed, unknown, pending (not heard when the outcome was certain)
//	redlock_node_errors_total{node,kind}         votes that failed or are unknown, by cause; see docs/alerts.md
//	redlock_node_up{node}                        0: calls to it fail at once; absent until it is first called
//	redlock_node_quarantined{node}               1: the restart guard keeps it from granting
//	redlock_nodes                                the nodes that the Locker is configured with
//	redlock_quorum_margin                        how many nodes can fail before nothing can be acquired; negative: nothing can
//
// result is no_quorum also where the context ended while there was none, and
// given_up where it ended while others held the lock. redlock_reclaims_pending
// and redlock_fencing_tokens_total exist once there is a Locker to ask; redlock_nodes
// and redlock_quorum_margin after the first operation.
//
// A Locker made by NewWithPools tells nothing of its nodes' connections: it has no
// redlock_node_up, no node is seen to be in quarantine, and the margin knows only
// their errors.
//
// The margin counts a node as able to grant while it is up, is not in
// quarantine, and has not answered its last vote in an attempt with an error of
// its own (READONLY, OOM and the like) within the last five minutes. Granted votes
// cannot be counted for it: an attempt ends as soon as a quorum has granted, so
// there are hardly ever more.
package redlockprom
