package matrix

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/go-redlock/integration/nodes"
	"github.com/redquorum/go-redlock/integration/proxy"
)

// Who the library is to the nodes, and the door that the harness leaves open for itself.
const (
	user     = "locker"
	password = "secret"
	harness  = "harness" // the user of nodes.Node.Do on nodes WithACL
)

// Settings are what the nodes of a matrix must be started with.
func Settings() []nodes.Option {
	return []nodes.Option{
		nodes.WithACL(user, password, "~*", "&*", "+@all"),
		nodes.WithAOF(),
		// Here nodes lose their process and never their power, so what is written need not be synced. A disk that
		// somebody else keeps busy would stall the nodes, and turn cells red that have nothing to do with it.
		nodes.WithConfig("appendfsync", "no"),
		nodes.WithConfig("enable-debug-command", "yes"),     // DEBUG RELOAD
		nodes.WithConfig("enable-protected-configs", "yes"), // CONFIG SET dir
		// A load answers other clients once in so many bytes of the file, and each key of populate is more.
		nodes.WithConfig("rdbcompression", "no"),
		nodes.WithConfig("loading-process-events-interval-bytes", "1024"),
		// Connections whose other end vanished without a word must not count for ever.
		nodes.WithConfig("tcp-keepalive", "1"),
	}
}

// A Fault is one row of the matrix, and how it comes and goes.
type Fault struct {
	Name string
	How  string // what is done, for those who read the printed matrix

	needs     nodes.Fault   // what the nodes must be able to have; empty: nothing special
	proxied   bool          // the library goes through the proxies
	anonymous bool          // the library logs in as nobody
	timeout   time.Duration // the node timeout; 0: nodeTimeout
	// reconnects says that inflict is over once the library has found the node again.
	reconnects bool

	inflict func(*victim) error
	heal    func(*victim) error // nil: the fault is over by itself
}

// Unavailable says why a cluster cannot have the fault, or nothing.
func (f *Fault) Unavailable(kind nodes.Kind, supports func(nodes.Fault) bool) string {
	if f.needs == "" || supports(f.needs) {
		return ""
	}
	if f.needs == nodes.Disconnecting {
		return fmt.Sprintf("nodes of kind %s have no network of their own to be taken off", kind)
	}
	return fmt.Sprintf("nodes of kind %s cannot have it", kind)
}

// A victim is a node that has the fault in one round.
type victim struct {
	node  *nodes.Node
	proxy *proxy.Proxy
	locks []string          // the keys of the cells
	bad   map[string]string // addresses of bad servers, by what they answer
	conn  redis.Conn        // a fault that lets nobody in keeps this one open
	saved map[string]string // what is to be set again
}

func (v *victim) do(cmd string, args ...any) error {
	_, err := v.node.Do(cmd, args...)
	return err
}

// killClients ends the connections of the library.
func (v *victim) killClients() error {
	return errors.Join(
		v.do("CLIENT", "KILL", "USER", user),
		v.do("CLIENT", "KILL", "USER", "default"),
	)
}

// set changes the server's configuration, and remembers what it was.
func (v *victim) set(name string, value any) error {
	old, err := redis.StringMap(v.node.Do("CONFIG", "GET", name))
	if err != nil {
		return err
	}
	v.saved[name] = old[name]
	return v.do("CONFIG", "SET", name, value)
}

func (v *victim) reset(name string) error { return v.do("CONFIG", "SET", name, v.saved[name]) }

// await asks until the condition holds, but for no longer than patience.
func await(what string, condition func() (bool, error)) error {
	deadline := time.Now().Add(patience)
	for {
		ok, err := condition()
		if ok {
			return nil
		}
		switch {
		case time.Now().Before(deadline):
		case err != nil:
			return fmt.Errorf("no %s within %v: %w", what, patience, err)
		default:
			return fmt.Errorf("no %s within %v", what, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// awaitAnswer waits until the server answers everybody with this error.
func (v *victim) awaitAnswer(code string) error {
	return await("answer "+code, func() (bool, error) {
		_, err := v.node.Do("GET", "nothing")
		return err != nil && strings.HasPrefix(err.Error(), code), err
	})
}

// config is a fault that is one CONFIG SET.
func config(name, how, directive string, value any) *Fault {
	return &Fault{
		Name: name, How: how,
		inflict: func(v *victim) error { return v.set(directive, value) },
		heal:    func(v *victim) error { return v.reset(directive) },
	}
}

// network is a fault of a proxy.
func network(name, how string, inflict func(*proxy.Proxy)) *Fault {
	return &Fault{
		Name: name, How: how, proxied: true,
		inflict: func(v *victim) error { inflict(v.proxy); return nil },
		heal:    func(v *victim) error { v.proxy.Heal(); return nil },
	}
}

// answering is a fault of a server that answers everything with the same bytes, one of proxy.BadReplies.
func answering(name, how, reply string) *Fault {
	return &Fault{
		Name: name, How: how, proxied: true,
		inflict: func(v *victim) error { v.proxy.Divert(v.bad[reply]); return nil },
		heal:    func(v *victim) error { v.proxy.Heal(); return nil },
	}
}

// server is a fault of the node as a whole.
func server(name, how string, needs nodes.Fault, inflict, heal func(*nodes.Node)) *Fault {
	f := &Fault{Name: name, How: how, needs: needs, inflict: func(v *victim) error { inflict(v.node); return nil }}
	if heal != nil {
		f.heal = func(v *victim) error { heal(v.node); return nil }
	}
	return f
}

func restart(name, how string, inflict func(*nodes.Node)) *Fault {
	f := server(name, how, nodes.Forgetting, inflict, nil)
	f.reconnects = true
	return f
}

func slow(f *Fault, timeout time.Duration) *Fault {
	f.timeout = timeout
	return f
}

// Faults are all faults, in the order of the printed matrix.
var Faults = []*Fault{
	server("stop", "SIGTERM; started again with its AOF", nodes.Stopping, (*nodes.Node).Stop, (*nodes.Node).Start),
	server("kill", "SIGKILL; started again with its AOF", nodes.Killing, (*nodes.Node).Kill, (*nodes.Node).Start),
	restart("restart empty", "SIGKILL, all data removed, started, and found again by the library, before the operations", (*nodes.Node).RestartEmpty),
	restart("restart with AOF", "SIGKILL, started again with its AOF, and found again by the library, before the operations",
		func(n *nodes.Node) { n.Kill(); n.Start() }),
	server("pause", "the process is frozen: the kernel accepts connections and data, nobody answers", nodes.Pausing, (*nodes.Node).Pause, (*nodes.Node).Resume),
	server("network disconnect", "the container is taken off its network", nodes.Disconnecting, (*nodes.Node).Disconnect, (*nodes.Node).Reconnect),
	network("connection refused", "proxy: all connections end, new ones are refused", (*proxy.Proxy).Refuse),

	network("requests lost", "proxy: partition in one direction, what the library sends is lost", func(p *proxy.Proxy) { p.Drop(proxy.Upstream) }),
	network("replies lost", "proxy: partition in one direction, the node executes and its answer is lost", func(p *proxy.Proxy) { p.Drop(proxy.Downstream) }),
	network("requests held back", "proxy: partition in one direction, the node gets what was sent when it ends", func(p *proxy.Proxy) { p.Stall(proxy.Upstream) }),
	network("replies held back", "proxy: partition in one direction, the library gets the answer when it ends", func(p *proxy.Proxy) { p.Stall(proxy.Downstream) }),
	network("half-open", "proxy: connections are accepted, and nothing passes in either direction", (*proxy.Proxy).HalfOpen),
	network("latency 20 ms", "proxy: 20 ms in each direction", func(p *proxy.Proxy) { p.Latency(20*time.Millisecond, 0) }),
	network("latency 30 ± 30 ms", "proxy: 0 to 60 ms in each direction", func(p *proxy.Proxy) { p.Latency(30*time.Millisecond, 30*time.Millisecond) }),
	slow(network("latency 200 ms", "proxy: 200 ms in each direction, under a node timeout of 1.5 s",
		func(p *proxy.Proxy) { p.Latency(200*time.Millisecond, 0) }), 1500*time.Millisecond),
	network("reset in mid-reply", "proxy: each connection is reset after 20 bytes of replies", func(p *proxy.Proxy) { p.ResetInReply(20) }),
	answering("garbage replies", "proxy: another server answers, with random bytes", "random bytes"),
	answering("oversized replies", "proxy: another server answers, with the header of an array of a billion elements", "a huge array that does not come"),

	{
		Name: "SCRIPT FLUSH", How: "SCRIPT FLUSH, before the operations",
		inflict: func(v *victim) error { return v.do("SCRIPT", "FLUSH") },
	},
	{
		Name: "CLIENT KILL", How: "CLIENT KILL of all the library's connections, before the operations",
		inflict: (*victim).killClients,
	},
	{
		Name: "CLIENT PAUSE WRITE", How: "CLIENT PAUSE 600000 WRITE; CLIENT UNPAUSE",
		inflict: func(v *victim) error { return v.do("CLIENT", "PAUSE", 600_000, "WRITE") },
		heal:    func(v *victim) error { return v.do("CLIENT", "UNPAUSE") },
	},

	{
		Name: "READONLY", How: "REPLICAOF an address where nobody listens; REPLICAOF NO ONE",
		inflict: func(v *victim) error { return v.do("REPLICAOF", "127.0.0.1", "1") },
		heal:    func(v *victim) error { return v.do("REPLICAOF", "NO", "ONE") },
	},
	config("NOREPLICAS", "CONFIG SET min-replicas-to-write 1", "min-replicas-to-write", 1),
	{
		Name: "MISCONF", How: "CONFIG SET save and a dir that cannot be written to; BGSAVE, which fails",
		inflict: func(v *victim) error {
			if err := errors.Join(v.set("save", "1 100000000"), v.set("dir", "/proc"), v.do("BGSAVE")); err != nil {
				return err
			}
			return await("failed BGSAVE", func() (bool, error) {
				info, err := redis.String(v.node.Do("INFO", "persistence"))
				return strings.Contains(info, "rdb_last_bgsave_status:err"), err
			})
		},
		heal: func(v *victim) error { return errors.Join(v.reset("save"), v.reset("dir")) },
	},
	config("OOM", "CONFIG SET maxmemory 1", "maxmemory", 1),
	{
		Name: "BUSY", How: "EVAL of an endless loop, CONFIG SET busy-reply-threshold 20; SCRIPT KILL",
		inflict: func(v *victim) (err error) {
			if err := v.set("busy-reply-threshold", 20); err != nil {
				return err
			}
			if v.conn, err = v.node.Dial(); err != nil {
				return err
			}
			// The answer comes after SCRIPT KILL.
			if err := errors.Join(v.conn.Send("EVAL", "while true do end", 0), v.conn.Flush()); err != nil {
				return err
			}
			return v.awaitAnswer("BUSY")
		},
		heal: func(v *victim) error {
			if err := v.do("SCRIPT", "KILL"); err != nil {
				return err
			}
			if _, err := v.conn.Receive(); err == nil {
				return errors.New("the endless loop has ended by itself")
			}
			// On a busy machine any script may be in the way for a moment.
			err := await("reset", func() (bool, error) {
				err := v.reset("busy-reply-threshold")
				return err == nil, err
			})
			return errors.Join(err, v.conn.Close())
		},
	},
	{
		Name: "LOADING", How: "DEBUG RELOAD of 3000 keys, at 20 ms each (CONFIG SET key-load-delay); made fast again",
		inflict: func(v *victim) (err error) {
			if v.conn, err = v.node.Dial(); err != nil {
				return err
			}
			// In another database, where they are nobody's keys.
			for _, cmd := range [][]any{{"SELECT", 1}, {"DEBUG", "POPULATE", 3000, "filler", 1100}, {"CONFIG", "SET", "key-load-delay", 20_000}} {
				if _, err := v.conn.Do(cmd[0].(string), cmd[1:]...); err != nil {
					return err
				}
			}
			if err := errors.Join(v.conn.Send("DEBUG", "RELOAD"), v.conn.Flush()); err != nil {
				return err
			}
			return v.awaitAnswer("LOADING")
		},
		heal: func(v *victim) error {
			if err := v.do("CONFIG", "SET", "key-load-delay", 0); err != nil {
				return err
			}
			_, loaded := v.conn.Receive()
			_, flushed := v.conn.Do("FLUSHDB")
			return errors.Join(loaded, flushed, v.conn.Close())
		},
	},

	{
		Name: "WRONGTYPE", How: "the keys are replaced by lists; those are deleted",
		inflict: func(v *victim) error {
			for _, key := range v.locks {
				if err := v.do("EVAL", "redis.call('DEL', KEYS[1]); redis.call('RPUSH', KEYS[1], 'not a lock')", 1, key); err != nil {
					return err
				}
			}
			return nil
		},
		heal: func(v *victim) error {
			for _, key := range v.locks {
				gone, err := redis.Int(v.node.Do("EVAL", "if redis.call('TYPE', KEYS[1]).ok ~= 'list' then return 0 end; return redis.call('DEL', KEYS[1])", 1, key))
				if err != nil || gone == 0 {
					return errors.Join(err, fmt.Errorf("the list at %q is gone", key))
				}
			}
			return nil
		},
	},
	{
		Name: "taken by another", How: "the keys are set to another owner's token; deleted, if they still hold it",
		inflict: func(v *victim) error {
			for _, key := range v.locks {
				if err := v.do("SET", key, stranger, "PX", 600_000); err != nil {
					return err
				}
			}
			return nil
		},
		heal: func(v *victim) error {
			var errs []error
			for _, key := range v.locks {
				switch holder, err := redis.String(v.node.Do("GET", key)); {
				case errors.Is(err, redis.ErrNil):
					errs = append(errs, &foreignKeyError{key, "was deleted"})
				case err != nil:
					errs = append(errs, err)
				case holder != stranger:
					errs = append(errs, &foreignKeyError{key, "was overwritten"})
				default:
					errs = append(errs, v.do("DEL", key))
				}
			}
			return errors.Join(errs...)
		},
	},

	{
		Name: "NOAUTH", How: "the library has no password, ACL SETUSER default gets one, and the library's connections are killed",
		anonymous: true,
		inflict: func(v *victim) error {
			return errors.Join(v.do("ACL", "SETUSER", "default", "resetpass", ">changed"), v.killClients())
		},
		heal: func(v *victim) error { return v.do("ACL", "SETUSER", "default", "nopass") },
	},
	{
		Name: "WRONGPASS", How: "ACL SETUSER with another password, and the library's connections are killed",
		inflict: func(v *victim) error {
			return errors.Join(v.do("ACL", "SETUSER", user, "resetpass", ">changed"), v.killClients())
		},
		heal: func(v *victim) error { return v.do("ACL", "SETUSER", user, "resetpass", ">"+password) },
	},
	{
		Name: "ACL without the channel", How: "ACL SETUSER resetchannels: neither PUBLISH nor SUBSCRIBE",
		inflict: func(v *victim) error { return v.do("ACL", "SETUSER", user, "resetchannels") },
		heal:    func(v *victim) error { return v.do("ACL", "SETUSER", user, "allchannels") },
	},
	{
		Name: "maxclients", How: "CONFIG SET maxclients 1, and the library's connections are killed",
		inflict: func(v *victim) (err error) {
			if v.conn, err = v.node.Dial(); err != nil {
				return err
			}
			old, err := redis.StringMap(v.conn.Do("CONFIG", "GET", "maxclients"))
			v.saved["maxclients"] = old["maxclients"]
			errs := []error{err}
			for _, cmd := range [][]any{{"CONFIG", "SET", "maxclients", 1}, {"CLIENT", "KILL", "USER", user}} {
				_, err := v.conn.Do(cmd[0].(string), cmd[1:]...)
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
		heal: func(v *victim) error {
			_, err := v.conn.Do("CONFIG", "SET", "maxclients", v.saved["maxclients"])
			return errors.Join(err, v.conn.Close())
		},
	},
}

// stranger is a token that is nobody's here.
const stranger = "stranger"

// A foreignKeyError says that the library has touched what is not its own.
type foreignKeyError struct{ key, what string }

func (e *foreignKeyError) Error() string {
	return fmt.Sprintf("another owner's key %q %s", e.key, e.what)
}
