package scripts

import (
	"errors"
	"strconv"
	"time"
)

// Inspect asks what the keys hold.
func Inspect(keys []string) *Call { return newCall(inspect, keys, nil, 0) }

// Inspected is what a node says of one key.
type Inspected struct {
	Held  bool
	Value string
	TTL   time.Duration // [Forever] if it never ends
	Fence int64         // the fencing counter, below 2^53; 0: none
	// Err says why the key cannot be a lock's, or may not be read.
	Err error
}

// The TTLs with a meaning of their own.
const (
	ttlForever = -1
	ttlFree    = -2
	ttlTrouble = -3
)

// ParseInspect reads the reply to [Inspect] of keys keys.
func ParseInspect(reply any, keys int) ([]Inspected, error) {
	const fields = 3
	elements, ok := reply.([]any)
	if !ok || len(elements) != fields*keys {
		return nil, unexpected(inspect, reply)
	}
	all := make([]Inspected, keys)
	for i := range all {
		value, isText := elements[fields*i].([]byte)
		left, isTTL := elements[fields*i+1].(int64)
		fence, isFence := elements[fields*i+2].(int64)
		if !isText || !isTTL || !isFence || fence < 0 || fence >= maxFence {
			return nil, unexpected(inspect, reply)
		}
		one := &all[i]
		one.Fence = fence
		switch {
		case left == ttlFree:
			continue
		case left == ttlTrouble:
			one.Err = errors.New(printable(value))
			continue
		case left == ttlForever:
			one.TTL = Forever
		case left >= 0 && left < int64(Forever/time.Millisecond):
			one.TTL = time.Duration(left) * time.Millisecond
		default:
			return nil, unexpected(inspect, reply)
		}
		one.Held, one.Value = true, string(value)
	}
	return all, nil
}

// printable makes one short line of what a node says.
func printable(text []byte) string {
	const most = 200
	line := make([]byte, 0, min(len(text), most))
	for _, b := range text[:min(len(text), most)] {
		if b < ' ' || b > '~' {
			b = '?'
		}
		line = append(line, b)
	}
	return string(line)
}

// FirstPage is the cursor with which a [Scan] begins; a node answers it when
// the last page has been read.
const FirstPage = "0"

// Scan asks for one page of the keys that match a glob pattern. The node looks
// at about count keys.
func Scan(cursor, pattern string, count int) *Call {
	return newCall(scan, nil, nil, 3).add(cursor, pattern, count)
}

// ParseScan reads the reply to [Scan].
func ParseScan(reply any) (cursor string, keys []string, err error) {
	elements, _ := reply.([]any)
	if len(elements) == 0 {
		return "", nil, unexpected(scan, reply)
	}
	texts := make([]string, len(elements))
	for i, element := range elements {
		text, ok := element.([]byte)
		if !ok {
			return "", nil, unexpected(scan, reply)
		}
		texts[i] = string(text)
	}
	if _, err := strconv.ParseUint(texts[0], 10, 64); err != nil {
		return "", nil, unexpected(scan, reply)
	}
	return texts[0], texts[1:], nil
}

// Announce publishes on the channel redlock:<what>:<key> of each key; the
// message is the owner label.
func Announce(keys []string, what, owner string) *Call {
	return newCall(announce, keys, nil, 2).add(what, owner)
}
