package redlock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/go-redlock/clock"
	"github.com/redquorum/go-redlock/internal/quorum"
)

// Thresholds of the checks.
const (
	clockTolerance  = time.Second
	slowRoundTrip   = 4   // the part of the node timeout that a round trip should not exceed
	fullMemory      = 0.9 // of maxmemory
	testedMajor     = 6   // the first major version of Redis that counts as tested
	minimumUptime   = time.Minute
	endsExclusion   = "exclusion: two clients can hold a lock at once"
	endsAvailable   = "availability: the node grants no locks"
	endsPromptness  = "promptness: waiters poll instead of hearing of releases"
	endsFencing     = "locks WithFencing: the node gives them no vote"
	askForPrivilege = "allow it to this user (ACL SETUSER); see docs/operations.md for the whole line"
)

// report draws the findings from what the nodes showed.
func (l *Locker) report(all []*examinee) *Report {
	r := &Report{}
	ours, known := medianAhead(all)
	for _, e := range all {
		f := &findings{Report: r, examinee: e, locker: l}
		if e.err != nil {
			f.add(LevelError, "reach", e.err.Error(), "availability: so many nodes less may fail",
				"see that the node runs, and that its address, password, TLS and firewall are right")
			continue
		}
		f.add(LevelOK, "reach", "answers on a new connection", "", "")
		if e.InfoErr != nil {
			f.denied()
		} else {
			f.role()
			f.cluster()
			f.alone()
			f.eviction()
			f.memory()
			f.persistence()
			f.replicas()
			f.uptime()
			f.version()
		}
		f.clock(ours)
		f.roundTrip()
		f.scripts()
		f.fencing()
		f.channels()
		f.listing()
		if e.ConfigErr != nil {
			f.add(LevelInfo, "config", e.ConfigErr.Error(), "nothing, but appendfsync and min-replicas-to-write cannot be checked",
				"allow +config|get to this user, or check them by hand")
		}
	}
	f := &findings{Report: r, examinee: &examinee{}, locker: l}
	f.quorum(all)
	if known {
		f.ownClock(ours)
	}
	f.guard(all)
	return r
}

// quorum says so when the nodes that answer are too few. That they are enough is
// no finding: what each of them is fit for is.
func (f *findings) quorum(all []*examinee) {
	reached := 0
	for _, e := range all {
		if e.err == nil {
			reached++
		}
	}
	if need := quorum.Size(len(all)); reached < need {
		f.add(LevelError, "quorum", fmt.Sprintf("%d of %d nodes answer, and it takes %d", reached, len(all), need),
			"availability: no lock can be acquired, renewed or surely released", "bring nodes back; see what is said of each")
	}
}

// medianAhead returns by how much most nodes' wall clocks are ahead of ours.
func medianAhead(all []*examinee) (time.Duration, bool) {
	var ahead []time.Duration
	for _, e := range all {
		if e.err == nil && e.TimeErr == nil {
			ahead = append(ahead, e.Ahead)
		}
	}
	if len(ahead) == 0 {
		return 0, false
	}
	slices.Sort(ahead)
	return ahead[len(ahead)/2], true
}

// findings are those about one node.
type findings struct {
	*Report
	*examinee
	locker *Locker
}

func (f *findings) add(level Level, what, seen, endangers, mend string) {
	f.Findings = append(f.Findings, Finding{
		Level: level, Node: f.addr, What: what, Seen: oneLine(seen), Endangers: endangers, Mend: mend,
	})
}

// number returns a field of INFO, or 0.
func (f *findings) number(field string) int64 {
	n, _ := strconv.ParseInt(f.Info[field], 10, 64)
	return n
}

func (f *findings) denied() {
	if f.Guard > 0 {
		f.add(LevelError, "info", f.InfoErr.Error(), "availability: the restart guard cannot work without INFO, so the node grants nothing",
			"allow +info to this user, or make do without WithRestartGuard")
		return
	}
	f.add(LevelInfo, "info", f.InfoErr.Error(), "nothing, but role, eviction, persistence and more cannot be checked",
		"allow +info to this user, or check them by hand")
}

func (f *findings) role() {
	switch role, replicas := f.Info["role"], f.number("connected_slaves"); {
	case role != "master":
		f.add(LevelError, "role", "a replica ("+role+")", endsAvailable+", and its master decides what it knows",
			"REPLICAOF NO ONE, if it is meant to be a node of its own, or name another server")
	case replicas > 0:
		f.add(LevelWarning, "role", fmt.Sprintf("a master with %d replicas", replicas), endsExclusion+" if a replica that has not heard of it takes the master's place",
			"remove the replicas, or make sure that nothing promotes them")
	default:
		f.add(LevelOK, "role", "a master without replicas", "", "")
	}
}

func (f *findings) cluster() {
	if f.Info["cluster_enabled"] == "1" {
		f.add(LevelError, "cluster", "a node of a Redis Cluster", "availability: it serves only its own slots, and hands them over",
			"run independent servers for locks, with cluster-enabled no")
		return
	}
	f.add(LevelOK, "cluster", "not part of a Redis Cluster", "", "")
}

func (f *findings) alone() {
	switch {
	case len(f.twins) > 0:
		f.add(LevelError, "alone", "the same server as "+strings.Join(f.twins, ", "), "every lock: one server has several votes, and its loss takes them all",
			"name each server once")
	case !distinct(f.Info["run_id"]):
		f.add(LevelInfo, "alone", "the server shows no run id", "nothing, but the same server under two addresses cannot be found",
			"compare the servers by hand")
	default:
		f.add(LevelOK, "alone", "no other address leads to this server", "", "")
	}
}

func (f *findings) eviction() {
	policy, limit := f.Info["maxmemory_policy"], f.number("maxmemory")
	const mend = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
	switch {
	case policy == "":
		f.add(LevelInfo, "eviction", "the server shows no maxmemory_policy", "", "")
	case policy == "noeviction":
		f.add(LevelOK, "eviction", "noeviction", "", "")
	case limit > 0:
		f.add(LevelError, "eviction", policy+" with maxmemory "+f.Info["maxmemory"], endsExclusion+" after the key of one was evicted", mend)
	default:
		f.add(LevelWarning, "eviction", policy+", without effect while maxmemory is 0", endsExclusion+" once somebody sets maxmemory", mend)
	}
}

func (f *findings) memory() {
	used, limit := f.number("used_memory"), f.number("maxmemory")
	switch {
	case limit == 0:
		f.add(LevelOK, "memory", "no maxmemory", "", "")
	case float64(used) > fullMemory*float64(limit):
		f.add(LevelWarning, "memory", fmt.Sprintf("%d of %d bytes used", used, limit), endsAvailable+" when memory is full (renewals and releases still work)",
			"raise maxmemory, or move other data elsewhere")
	default:
		f.add(LevelOK, "memory", fmt.Sprintf("%d of %d bytes used", used, limit), "", "")
	}
}

func (f *findings) persistence() {
	const endangers = endsExclusion + " after a restart of this node"
	const mend = "use WithRestartGuard in every client, or appendonly yes with appendfsync always"
	sync, known := f.Config["appendfsync"]
	switch {
	case f.Guard > 0:
		f.add(LevelOK, "persistence", fmt.Sprintf("the restart guard of %v makes up for what a restart forgets", f.Guard), "", "")
	case f.Info["aof_enabled"] != "1":
		f.add(LevelWarning, "persistence", "no append-only file: a restart forgets locks", endangers, mend)
	case sync == "always":
		f.add(LevelOK, "persistence", "every write is on the disk before it is answered", "", "")
	case known:
		f.add(LevelWarning, "persistence", "appendfsync "+sync+": a crash forgets the latest locks", endangers, mend)
	default:
		f.add(LevelInfo, "persistence", "an append-only file, but appendfsync is not known", endangers+" unless it is always", mend)
	}
}

func (f *findings) replicas() {
	// INFO shows this field only if the setting is on.
	_, on := f.Info["min_slaves_good_slaves"]
	want := f.Config["min-replicas-to-write"]
	if on || want != "" && want != "0" {
		f.add(LevelWarning, "replicas", "min-replicas-to-write is set", "availability: without its replicas the node neither grants nor renews nor releases",
			"CONFIG SET min-replicas-to-write 0, and the same in redis.conf")
		return
	}
	f.add(LevelOK, "replicas", "does not depend on replicas", "", "")
}

func (f *findings) uptime() {
	up := time.Duration(min(f.number("uptime_in_seconds"), int64(clock.Longest/time.Second))) * time.Second
	switch {
	case f.Quarantine > 0:
		f.add(LevelWarning, "uptime", fmt.Sprintf("restarted %v ago: the restart guard keeps it from granting for another %v", up, f.Quarantine),
			"availability: so many nodes less may fail until then", "wait; restart nodes one at a time")
	case f.Guard == 0 && up < max(f.locker.ttl, minimumUptime):
		f.add(LevelWarning, "uptime", fmt.Sprintf("restarted %v ago", up), endsExclusion+" if it has forgotten any",
			"use WithRestartGuard in every client; restart nodes one at a time")
	default:
		f.add(LevelOK, "uptime", up.String(), "", "")
	}
}

func (f *findings) version() {
	version := f.Info["redis_version"]
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	if err != nil || major < testedMajor {
		f.add(LevelWarning, "version", fmt.Sprintf("Redis %q", version), "nothing that is known, but it is not tested", fmt.Sprintf("use Redis %d or later", testedMajor))
		return
	}
	f.add(LevelOK, "version", "Redis "+version, "", "")
}

func (f *findings) clock(ours time.Duration) {
	const mend = "run an NTP client on the node that slews the clock and does not step it"
	off := f.Ahead - ours
	switch {
	case f.TimeErr != nil:
		f.add(LevelInfo, "clock", f.TimeErr.Error(), "nothing, but its clock cannot be checked", "allow +time to this user")
	case off.Abs() > clockTolerance+f.RoundTrip:
		f.add(LevelWarning, "clock", fmt.Sprintf("off by %v from most of the others", off), endsExclusion+" when it is set forwards: keys end by this clock", mend)
	default:
		f.add(LevelOK, "clock", "agrees with most of the others", "", "")
	}
}

func (f *findings) ownClock(ahead time.Duration) {
	if ahead.Abs() > clockTolerance {
		f.add(LevelWarning, "clock", fmt.Sprintf("this machine's clock is off by %v from most nodes", -ahead),
			"fencing numbers, if all nodes lose their counters while clients' clocks are a day apart; nothing else rests on it", "run an NTP client on this machine")
		return
	}
	f.add(LevelOK, "clock", "this machine's agrees with most nodes", "", "")
}

// guard compares the restart guard with how long the keys of a lock can last
// by default without being renewed.
func (f *findings) guard(all []*examinee) {
	option, longest := "WithTTL", f.locker.ttl
	if f.locker.minHold > longest {
		option, longest = "WithMinHold", f.locker.minHold
	}
	for _, e := range all {
		if e.err == nil && e.Guard > 0 && e.Guard < longest {
			f.add(LevelError, "guard", fmt.Sprintf("WithRestartGuard(%v) is shorter than %s(%v)", e.Guard, option, longest),
				endsExclusion+" after a restart", "give the longest TTL or minimum hold that any client uses")
			return
		}
	}
	f.add(LevelOK, "guard", "off, or as long as the default TTL and minimum hold", "", "")
}

func (f *findings) roundTrip() {
	timeout := f.locker.timeout
	if f.RoundTrip > timeout/slowRoundTrip {
		f.add(LevelWarning, "round-trip", fmt.Sprintf("%v, with a node timeout of %v", f.RoundTrip, timeout),
			"availability: on a bad day the node is taken for dead", "give WithNodeTimeout more, or place the nodes closer")
		return
	}
	f.add(LevelOK, "round-trip", f.RoundTrip.String(), "", "")
}

func (f *findings) scripts() {
	switch err := f.examinee.scripts; {
	case len(f.twins) > 0:
		// The node was tried by each of its addresses, and these undid each
		// other's. What is wrong has been said.
	case f.quarantined():
		f.add(LevelInfo, "scripts", err.Error(), "nothing, but whether it would grant could not be tried", "try again when the quarantine is over")
	case err != nil:
		f.add(LevelError, "scripts", err.Error(), endsAvailable, askForPrivilege)
	case f.Load != nil:
		f.add(LevelInfo, "scripts", "work, but cannot be loaded: "+f.Load.Error(), "nothing, but every call carries the whole script", "allow +script|load to this user")
	default:
		f.add(LevelOK, "scripts", "lock, renew and release", "", "")
	}
}

func (f *findings) fencing() {
	switch err := f.examinee.fencing; {
	case f.examinee.scripts != nil, len(f.twins) > 0:
		// Said already.
	case err != nil:
		f.add(LevelWarning, "fencing", err.Error(), endsFencing, "allow the keys ~"+counterPrefix+"* to this user")
	default:
		f.add(LevelOK, "fencing", "counters can be used", "", "")
	}
}

func (f *findings) channels() {
	switch {
	case f.Publish != nil:
		f.add(LevelWarning, "channels", "PUBLISH: "+f.Publish.Error(), endsPromptness, "allow +publish and the channels &"+reserved+"* to this user")
	case f.Subscribe != nil:
		f.add(LevelWarning, "channels", "SUBSCRIBE: "+f.Subscribe.Error(), endsPromptness, "allow +subscribe and the channels &"+reserved+"* to this user")
	default:
		f.add(LevelOK, "channels", "releases are announced and heard", "", "")
	}
}

func (f *findings) listing() {
	switch {
	case f.Scan != nil:
		f.add(LevelInfo, "listing", "SCAN: "+f.Scan.Error(), "List and Watch: they do not see this node", "allow +scan to this user")
	case f.Follow != nil:
		f.add(LevelInfo, "listing", "PSUBSCRIBE: "+f.Follow.Error(), "Watch: it sees changes on this node with a delay", "allow +psubscribe and the channels &"+reserved+"* to this user")
	default:
		f.add(LevelOK, "listing", "allowed", "", "")
	}
}
