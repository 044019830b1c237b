package pool_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/pool"
)

// dumb says whether a stream must be refused. It has all of it at once and
// follows it by recursion.
type dumb struct {
	data            string
	elements, bytes int
}

var errEnd = errors.New("the stream ends")

func (d *dumb) refuses() bool {
	for {
		d.elements, d.bytes = 0, 0
		switch err := d.value(0); {
		case errors.Is(err, errEnd):
			return false
		case err != nil:
			return true
		}
	}
}

func (d *dumb) value(depth int) error {
	line, rest, ended := strings.Cut(d.data, "\n")
	if len(line)+1 > pool.MaxLine && (ended || len(line) > pool.MaxLine) {
		return pool.ErrOversized
	}
	if !ended {
		return errEnd
	}
	d.data = rest
	line = strings.TrimRight(line, "\r\n")
	if line == "" || line[0] != '$' && line[0] != '*' {
		return nil
	}
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil:
		return err
	case n == -1:
		return nil
	case n < 0:
		return errors.New("negative")
	}
	if line[0] == '$' {
		if d.bytes += n; d.bytes > pool.MaxBulk || n > pool.MaxBulk {
			return pool.ErrOversized
		}
		if len(d.data) < n+2 {
			return errEnd
		}
		d.data = d.data[n+2:]
		return nil
	}
	if n == 0 {
		return nil
	}
	if depth == pool.MaxDepth || n > pool.MaxArray {
		return pool.ErrOversized
	}
	if d.elements += n; d.elements > pool.MaxArray {
		return pool.ErrOversized
	}
	for range n {
		if err := d.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// chunks yields the stream in pieces whose lengths depend on the seed.
func chunks(data []byte, seed uint64, yield func([]byte) error) error {
	rng := rand.New(rand.NewPCG(seed, seed))
	most := 1 + rng.IntN(20)
	if seed%3 == 0 {
		most = 5000
	}
	for len(data) > 0 {
		n := min(1+rng.IntN(most), len(data))
		if err := yield(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// canned is a connection from which a stream can be read in chunks.
type canned struct {
	net.Conn
	data []byte
	rng  *rand.Rand
}

func (c *canned) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data[:min(len(c.data), 1+c.rng.IntN(2000))])
	c.data = c.data[n:]
	return n, nil
}

func (c *canned) Close() error { return nil }

// receive lets redigo read a stream to its end, through the guard.
func receive(data []byte, seed uint64) (replies []any, err error) {
	conn := redis.NewConn(pool.NewWire(&canned{data: data, rng: rand.New(rand.NewPCG(seed, 1))}), 0, 0)
	for {
		reply, err := conn.Receive()
		var answer redis.Error
		if err != nil && !errors.As(err, &answer) {
			return replies, err
		}
		replies = append(replies, reply)
	}
}

// weight counts what a reply holds.
func weight(reply any, depth int) (elements, size, deepest int) {
	deepest = depth
	switch r := reply.(type) {
	case []byte:
		return 0, len(r), depth
	case []any:
		elements = len(r)
		for _, e := range r {
			en, sn, dn := weight(e, depth+1)
			elements, size, deepest = elements+en, size+sn, max(deepest, dn)
		}
	}
	return elements, size, deepest
}

func FuzzGuard(f *testing.F) {
	for i, s := range []string{
		":1\r\n", "+OK\r\n-ERR no\r\n", "$3\r\nabc\r\n", "$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n", "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
		"*999999999999999999\r\n", "$18446744073709551621\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "$5\r\nab", "$+1\r\nx\r\n",
		"*2\r\n$1048576\r\n", "$-2\r\n", "*\r\n", "\r\n\n\r", "HTTP/1.1 400 Bad Request\r\n\r\n", "*4096\r\n*4096\r\n", "*3\r\n$-1\r\n*-1\r\n*0\r\n:1\r\n",
	} {
		f.Add([]byte(s), uint64(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		var g pool.Guard
		err := chunks(data, seed, g.Check)
		want := (&dumb{data: string(data)}).refuses()
		require.Equal(t, want, err != nil, "%q: %v", data, err)

		replies, _ := receive(data, seed)
		for _, reply := range replies {
			elements, size, depth := weight(reply, 0)
			require.LessOrEqual(t, elements, pool.MaxArray)
			require.LessOrEqual(t, size, pool.MaxBulk)
			require.LessOrEqual(t, depth, pool.MaxDepth)
		}
	})
}

func TestStreamsThatWouldCostMemoryAreRefusedBeforeTheyDo(t *testing.T) {
	for name, stream := range map[string]string{
		"long array":       "*1000000000\r\n",
		"long bulk":        "$1000000000\r\n",
		"long line":        "+" + strings.Repeat("x", 10_000_000),
		"deep":             strings.Repeat("*1\r\n", 1_000_000),
		"wide and deep":    "*4096\r\n" + strings.Repeat("*4096\r\n", 4096),
		"many bulks":       "*4096\r\n" + strings.Repeat(bulk(strings.Repeat("x", 100_000)), 200),
		"siblings":         "*200\r\n" + strings.Repeat("*100\r\n"+strings.Repeat(":1\r\n", 100), 200),
		"overflow":         "$18446744073709551621\r\nabcde\r\n$999999999\r\n",
		"behind a bulk":    bulk("*1") + "*1000000000\r\n",
		"behind an answer": ":1\r\n*2\r\n:1\r\n:1\r\n*1000000000\r\n",
	} {
		var before, after runtime.MemStats
		data := []byte(stream)
		runtime.ReadMemStats(&before)
		_, err := receive(data, 1)
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, io.EOF, name)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), name)
	}
}

// legal makes a reply within the limits, and what redigo must read it as.
func legal(rng *rand.Rand, depth int, elements, size *int) (wire string, value any) {
	switch rng.IntN(7) {
	case 0:
		n := rng.Int64() - rng.Int64()
		return fmt.Sprintf(":%d\r\n", n), n
	case 1:
		s := strings.Repeat("s", rng.IntN(200))
		return "+" + s + "\r\n", s
	case 2:
		return "$-1\r\n", nil
	case 3:
		return "*-1\r\n", nil
	case 4:
		n := 0
		if depth < pool.MaxDepth {
			n = rng.IntN(min(12, *elements+1))
		}
		*elements -= n
		values := make([]any, n)
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", n)
		for i := range values {
			var w string
			w, values[i] = legal(rng, depth+1, elements, size)
			b.WriteString(w)
		}
		return b.String(), values
	default:
		n := rng.IntN(min(20_000, *size+1))
		*size -= n
		p := make([]byte, n)
		for i := range p {
			p[i] = "\r\n*$:+-0129a\x00"[rng.IntN(13)]
		}
		return bulk(string(p)), p
	}
}

func TestLegalRepliesAreNeverRefused(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var stream bytes.Buffer
		var want []any
		for range 1 + rng.IntN(20) {
			elements, size := pool.MaxArray, pool.MaxBulk
			w, v := legal(rng, 0, &elements, &size)
			stream.WriteString(w)
			want = append(want, v)
		}
		got, err := receive(stream.Bytes(), seed)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, want, got)
	}
	for name, stream := range map[string]string{
		"INFO of 8 KiB":   bulk(strings.Repeat("x", 8<<10)),
		"largest bulk":    bulk(strings.Repeat("x", pool.MaxBulk)),
		"largest array":   "*4096\r\n" + strings.Repeat(":1\r\n", 4096),
		"deepest":         strings.Repeat("*1\r\n", pool.MaxDepth) + ":1\r\n",
		"longest error":   "-" + strings.Repeat("x", pool.MaxLine-3) + "\r\n",
		"nil, empty, nil": "$-1\r\n*0\r\n*-1\r\n$0\r\n\r\n",
		"many in a row":   strings.Repeat("*4000\r\n"+strings.Repeat(":1\r\n", 4000), 20),
	} {
		_, err := receive([]byte(stream), 2)
		assert.ErrorIs(t, err, io.EOF, name)
	}
}
