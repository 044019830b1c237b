package sim

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/go-redlock/internal/scripts"
)

// A Store is what a node remembers, and the scripts that work on it. It is not
// safe for concurrent use.
type Store struct {
	keys map[string]entry
	// The node's clock shows offset at origin, and runs at rate: 1.004 ends a TTL
	// 0.4 % early.
	origin time.Time
	offset time.Duration
	rate   float64
	// publish hears what the scripts announce.
	publish func(channel, message string)
}

type entry struct {
	value string
	list  bool      // the key holds something else than a string
	ends  time.Time // zero: never
}

// NewStore returns an empty Store whose clock shows the right time.
func NewStore() *Store {
	return &Store{keys: make(map[string]entry), origin: time.Now(), rate: 1, publish: func(string, string) {}}
}

// A Failure is the reply of a script that failed; nothing has been changed.
type Failure string

const (
	wrongType = Failure("WRONGTYPE Operation against a key holding the wrong kind of value")
	noNumber  = Failure("ERR fencing counter is not a number")
	exhausted = Failure("ERR fencing counter is exhausted")

	loading   = Failure("LOADING Redis is loading the dataset in memory")
	forbidden = Failure("ERR something went wrong behind the last write") // not one that is permanent
)

// Run executes a script and returns its reply: an int64, an []int64 or a
// [Failure]. It follows the Lua line by line; read that first.
func (s *Store) Run(script *scripts.Script, keys, args []string) any {
	switch script.Name() {
	case "acquire":
		return s.acquire(keys, args)
	case "renew":
		return s.renew(keys, args)
	case "release":
		return s.release(keys, args)
	case "confirm":
		return s.confirm(keys, args)
	}
	panic("sim: no script " + script.Name())
}

// Set sets a key to a string. Without a positive ttl it does not expire.
func (s *Store) Set(key, value string, ttl time.Duration) {
	e := entry{value: value}
	if ttl > 0 {
		e.ends = s.end(ttl)
	}
	s.keys[key] = e
}

// SetList sets a key to something that is no string.
func (s *Store) SetList(key string) { s.keys[key] = entry{list: true} }

// Get returns the value of a string key, and what is left of its TTL: 0 if it
// does not expire.
func (s *Store) Get(key string) (value string, ttl time.Duration, ok bool) {
	e, ok := s.find(key)
	if !ok || e.list {
		return "", 0, false
	}
	if !e.ends.IsZero() {
		ttl = time.Until(e.ends)
	}
	return e.value, ttl, true
}

// Keys returns the keys that have not expired, in no order.
func (s *Store) Keys() []string {
	keys := make([]string, 0, len(s.keys))
	for key := range s.keys {
		if _, ok := s.find(key); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// Delete deletes a key.
func (s *Store) Delete(key string) { delete(s.keys, key) }

// Forget deletes every key that is not a fencing counter.
func (s *Store) Forget() {
	for key := range s.keys {
		if !strings.HasPrefix(key, "redlock:fence:") {
			delete(s.keys, key)
		}
	}
}

// end returns when a key is gone that is told now to live for ttl. Redis counts
// in whole milliseconds of its clock, cut off, so that can be almost one of them
// too early.
func (s *Store) end(ttl time.Duration) time.Time {
	now := time.Duration(float64(time.Since(s.origin))*s.rate) + s.offset
	gone := now.Truncate(time.Millisecond) + ttl - s.offset
	return s.origin.Add(time.Duration(float64(gone) / s.rate))
}

func (s *Store) find(key string) (entry, bool) {
	e, ok := s.keys[key]
	if ok && !e.ends.IsZero() && !time.Now().Before(e.ends) {
		delete(s.keys, key)
		return entry{}, false
	}
	return e, ok
}

// pttl is PTTL: milliseconds, -1 for a key that does not expire.
func (s *Store) pttl(e entry) int64 {
	if e.ends.IsZero() {
		return -1
	}
	return int64(float64(time.Until(e.ends)) * s.rate / float64(time.Millisecond))
}

func (s *Store) acquire(keys, args []string) any {
	token, ttl, proposal, only := args[0], integer(args[1]), integer(args[2]), ""
	if len(args) > 4 {
		only = args[4]
	}
	n := len(keys)
	if proposal > 0 {
		n /= 2
	}
	var held []int64
	longest, silent, kept := int64(0), int64(0), make([]bool, n)
	for i, key := range keys[:n] {
		e, ok := s.find(key)
		switch {
		case e.list:
			return wrongType
		case ok && e.value == token && only != "new":
			kept[i] = s.pttl(e) >= ttl
		case !ok && only == "again":
			held = append(held, int64(i+1))
		case ok:
			left := s.pttl(e)
			if left < 0 {
				left = math.MaxInt64
			}
			longest = max(longest, left)
			if len(e.value) < 23 || e.value[22] != '.' {
				silent = 1
			}
			held = append(held, int64(i+1))
		}
	}
	if len(held) > 0 {
		if longest == math.MaxInt64 {
			longest = -1
		}
		return append([]int64{longest, silent}, held...)
	}

	fence := float64(proposal)
	if proposal > 0 {
		for _, key := range keys[n:] {
			last, failed := s.counter(key, -1)
			if failed != "" {
				return failed
			}
			if last >= fence {
				fence = last + 1
			}
		}
		if fence >= 1<<53 {
			return exhausted
		}
	}

	for i, key := range keys[:n] {
		if !kept[i] {
			s.Set(key, token, milliseconds(args[1]))
		}
	}
	if proposal > 0 {
		for _, key := range keys[n:] {
			s.Set(key, strconv.FormatInt(int64(fence), 10), milliseconds(args[3]))
		}
	}
	return int64(fence)
}

func (s *Store) renew(keys, args []string) any {
	token, ttl := args[0], integer(args[1])
	missing := false
	for _, key := range keys {
		switch e, ok := s.find(key); {
		case e.list:
			return wrongType
		case !ok:
			missing = true
		case e.value != token:
			return int64(-1)
		}
	}
	if missing {
		return int64(0)
	}
	for _, key := range keys {
		if e, _ := s.find(key); s.pttl(e) < ttl {
			e.ends = s.end(milliseconds(args[1]))
			s.keys[key] = e
		}
	}
	return int64(1)
}

func (s *Store) release(keys, args []string) any {
	token, announce := args[0], args[1] == "1"
	ours := int64(0)
	for _, key := range keys {
		e, ok := s.find(key)
		if !ok || e.list || e.value != token {
			continue
		}
		if len(args) > 2 {
			e.ends = s.end(milliseconds(args[2]))
			s.keys[key] = e
		} else {
			delete(s.keys, key)
		}
		ours++
		if announce {
			_, owner, _ := strings.Cut(token, ".")
			s.publish("redlock:released:"+key, owner)
		}
	}
	return ours
}

func (s *Store) confirm(keys, args []string) any {
	token, fence := args[0], float64(integer(args[1]))
	n := len(keys) / 2
	for _, key := range keys[:n] {
		switch e, ok := s.find(key); {
		case e.list:
			return wrongType
		case !ok || e.value != token:
			return int64(0)
		}
	}
	var low []string
	for _, key := range keys[n:] {
		last, failed := s.counter(key, 0)
		if failed != "" {
			return failed
		}
		switch {
		case last > fence, last == fence && len(args) < 4:
			return int64(0)
		case last < fence:
			low = append(low, key)
		}
	}
	for _, key := range low {
		s.Set(key, args[1], milliseconds(args[2]))
	}
	return int64(1)
}

// counter returns what a fencing counter says, or none if there is none.
func (s *Store) counter(key string, none float64) (float64, Failure) {
	e, ok := s.find(key)
	switch {
	case e.list:
		return 0, wrongType
	case !ok:
		return none, ""
	case e.value == "" || strings.Trim(e.value, "0123456789") != "":
		return 0, noNumber
	}
	last, err := strconv.ParseFloat(e.value, 64)
	if err != nil {
		return math.Inf(1), "" // digits can only be too many
	}
	return last, ""
}

// integer reads an argument of ours.
func integer(arg string) int64 {
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		panic("sim: " + err.Error())
	}
	return n
}

func milliseconds(arg string) time.Duration {
	return time.Duration(integer(arg)) * time.Millisecond
}
