package redlocktest

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// redisVersion is the version that a node claims: one whose commands the
// embedded engine covers as far as a lock needs them.
const redisVersion = "7.0.15"

// hook runs before each command, and before each that a Lua script calls; the
// latter with the mutex of miniredis held. It takes node.mu and nothing else.
func (p *process) hook(peer *server.Peer, command string, args ...string) bool {
	n := p.node
	n.mu.Lock()
	_, outer := n.outer[peer]
	var errText string
	var failed bool
	if !outer { // for the others this was settled when they were taken up
		errText, failed = n.faults.fails(command, true)
	}
	n.mu.Unlock()

	switch {
	case failed:
		peer.WriteError(errText)
		return true
	case command == "INFO":
		peer.WriteBulk(p.info(args))
		return true
	case command == "CONFIG" && len(args) == 2 && strings.EqualFold(args[0], "GET"):
		peer.WriteStrings(setting(args[1]))
		return true
	}
	return false
}

// info answers INFO with what a client of a lock cluster can want to know.
// miniredis knows of clients and statistics only.
func (p *process) info(sections []string) string {
	n := p.node
	n.mu.Lock()
	clients, commands := len(p.clients), n.total
	n.mu.Unlock()
	_, port, _ := net.SplitHostPort(n.addr) // an address of our making
	uptime := int(time.Since(p.started) / time.Second)

	all := []struct{ name, text string }{
		{"Server", fmt.Sprintf("redis_version:%s\r\nredis_mode:standalone\r\nrun_id:%s\r\ntcp_port:%s\r\nuptime_in_seconds:%d\r\nuptime_in_days:%d\r\n",
			redisVersion, p.runID, port, uptime, uptime/(24*60*60))},
		{"Clients", fmt.Sprintf("connected_clients:%d\r\n", clients)},
		{"Memory", "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"},
		{"Persistence", "loading:0\r\naof_enabled:0\r\n"},
		{"Stats", fmt.Sprintf("total_commands_processed:%d\r\n", commands)},
		{"Replication", "role:master\r\nconnected_slaves:0\r\n"},
		{"Cluster", "cluster_enabled:0\r\n"},
	}
	var parts []string
	for _, s := range all {
		if wanted(sections, s.name) {
			parts = append(parts, "# "+s.name+"\r\n"+s.text)
		}
	}
	return strings.Join(parts, "\r\n")
}

// setting answers CONFIG GET of one name, in lower case, with what is true of an
// embedded node.
func setting(name string) []string {
	values := map[string]string{
		"appendonly":            "no",
		"appendfsync":           "everysec",
		"save":                  "",
		"maxmemory":             "0",
		"maxmemory-policy":      "noeviction",
		"min-replicas-to-write": "0",
	}
	if value, known := values[name]; known {
		return []string{name, value}
	}
	return nil
}

func wanted(sections []string, name string) bool {
	for _, s := range sections {
		switch strings.ToLower(s) {
		case strings.ToLower(name), "all", "default", "everything":
			return true
		}
	}
	return len(sections) == 0
}
