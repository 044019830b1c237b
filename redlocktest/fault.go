package redlocktest

import (
	"strings"
	"time"
)

// faults is what a node's user has asked for; [Node.mu] guards it.
type faults struct {
	delay       time.Duration
	replyDelay  time.Duration
	dropReplies bool
	errText     string              // "" for none
	errCommands map[string]struct{} // empty for all that come from outside
}

// fails says whether a command gets the error, inner that it is one which a
// Lua script calls.
func (f *faults) fails(command string, inner bool) (text string, fails bool) {
	if f.errText == "" {
		return "", false
	}
	if len(f.errCommands) == 0 {
		return f.errText, !inner
	}
	_, named := f.errCommands[command]
	return f.errText, named
}

// Hang makes the node stand still like a process that was sent SIGSTOP: it
// accepts connections, and executes and answers nothing until [Node.Resume].
//
// What clients send meanwhile is executed then, even if the client has closed
// its connection since; bytes that a server's kernel has received do not go
// away. A command that is under way when Hang is called is still finished.
// Hanging a node that hangs or is stopped does nothing, and a node that is
// started does not hang.
func (n *Node) Hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.process; p != nil && p.hung == nil {
		p.hung = make(chan struct{})
	}
}

// Resume ends [Node.Hang]. It does nothing if the node does not hang.
func (n *Node) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.process; p != nil && p.hung != nil {
		close(p.hung)
		p.hung = nil
	}
}

// SetDelay makes every command that arrives from now on wait for d before it
// is executed, like a slow network on the way to the node: commands that
// arrive together are executed together, d later, and in order on each
// connection. A client that closes its connection does not take back what it
// has sent. 0 turns the delay off for commands that arrive afterwards.
//
// Like all faults but [Node.Hang], it outlives a restart of the node.
func (n *Node) SetDelay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.delay = d
}

// SetReplyDelay makes every answer, and every published message, that the node
// gives from now on leave d later, like a slow network on the way back. The
// commands are executed at once. 0 turns it off.
func (n *Node) SetReplyDelay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.replyDelay = d
}

// SetError makes the node answer the named commands, or all if none are named,
// with the error msg, "OOM command not allowed" for instance, and not execute
// them. It replaces what an earlier call has set; an empty msg ends it.
//
// Commands that a Lua script calls are hit when they are named, and only then:
// SetError("ERR no permission", "PUBLISH") lets a script run until it publishes.
func (n *Node) SetError(msg string, commands ...string) {
	named := make(map[string]struct{}, len(commands))
	for _, c := range commands {
		named[canonical(c)] = struct{}{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.errText, n.faults.errCommands = msg, named
}

// DropReplies makes the node execute commands without an answer, as when the
// network loses packets in one direction only.
//
// A connection that has lost an answer stays mute after DropReplies(false),
// too: a later answer would be taken for the lost one, and TCP never leaves
// out a part of what it carries. New connections, and those that lost nothing,
// work again.
func (n *Node) DropReplies(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.dropReplies = on
}

// DropConnections closes all connections, those of subscribers included, as
// CLIENT KILL does. What they had sent and the node has not executed yet is
// forgotten. The node goes on accepting new ones.
func (n *Node) DropConnections() {
	n.mu.Lock()
	var clients []*client
	if n.process != nil {
		clients = n.process.takeClientsLocked()
	}
	n.mu.Unlock()
	for _, c := range clients {
		c.kill(hangUp)
	}
	n.wakeBlocked()
}

func canonical(command string) string { return strings.ToUpper(command) }
