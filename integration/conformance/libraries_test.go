package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	theirs "github.com/go-redsync/redsync/v4"
	theirredis "github.com/go-redsync/redsync/v4/redis"
	theirredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	redigolib "github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"

	ours "github.com/redquorum/go-redlock/compat/redsync"
	ourredis "github.com/redquorum/go-redlock/compat/redsync/redis"
	ourredigo "github.com/redquorum/go-redlock/compat/redsync/redis/redigo"
	"github.com/redquorum/go-redlock/pool"
)

// A mutex is that of either library.
type mutex interface {
	Name() string
	Value() string
	Until() time.Time
	Lock() error
	LockContext(ctx context.Context) error
	TryLock() error
	TryLockContext(ctx context.Context) error
	Unlock() (bool, error)
	UnlockContext(ctx context.Context) (bool, error)
	Extend() (bool, error)
	ExtendContext(ctx context.Context) (bool, error)
	Valid() (bool, error)
	ValidContext(ctx context.Context) (bool, error)
}

// An option is one of both libraries.
type option struct {
	theirs theirs.Option
	ours   ours.Option
}

func expiry(d time.Duration) option {
	return option{theirs.WithExpiry(d), ours.WithExpiry(d)}
}

func tries(n int, delay time.Duration) []option {
	return []option{
		{theirs.WithTries(n), ours.WithTries(n)},
		{theirs.WithRetryDelay(delay), ours.WithRetryDelay(delay)},
	}
}

func delays(f func(tries int) time.Duration) option {
	return option{theirs.WithRetryDelayFunc(f), ours.WithRetryDelayFunc(f)}
}

func drift(factor float64) option {
	return option{theirs.WithDriftFactor(factor), ours.WithDriftFactor(factor)}
}

func timeout(factor float64) option {
	return option{theirs.WithTimeoutFactor(factor), ours.WithTimeoutFactor(factor)}
}

func genValue(f func() (string, error)) option {
	return option{theirs.WithGenValueFunc(f), ours.WithGenValueFunc(f)}
}

func value(v string) option  { return option{theirs.WithValue(v), ours.WithValue(v)} }
func failFast(b bool) option { return option{theirs.WithFailFast(b), ours.WithFailFast(b)} }
func shuffled(b bool) option { return option{theirs.WithShufflePools(b), ours.WithShufflePools(b)} }

func setNXOnExtend() option { return option{theirs.WithSetNXOnExtend(), ours.WithSetNXOnExtend()} }

// A library makes mutexes.
type library func(name string, options []option) mutex

// readTimeout is how long both libraries wait for an answer: redsync by redigo's timeout, ours by its own.
const readTimeout = 5 * time.Second

func redigoPools(t *testing.T, addrs []string) []*redigolib.Pool {
	t.Helper()
	var pools []*redigolib.Pool
	for _, addr := range addrs {
		p := &redigolib.Pool{MaxIdle: 3, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
			return redigolib.DialContext(ctx, "tcp", addr,
				redigolib.DialReadTimeout(readTimeout), redigolib.DialWriteTimeout(readTimeout))
		}}
		t.Cleanup(func() { assert.NoError(t, p.Close()) })
		pools = append(pools, p)
	}
	return pools
}

func newTheirs(t *testing.T, addrs []string) library {
	t.Helper()
	var pools []theirredis.Pool
	for _, p := range redigoPools(t, addrs) {
		pools = append(pools, theirredigo.NewPool(p))
	}
	rs := theirs.New(pools...)
	return func(name string, options []option) mutex {
		var all []theirs.Option
		for _, o := range options {
			all = append(all, o.theirs)
		}
		return rs.NewMutex(name, all...)
	}
}

func newOurs(t *testing.T, addrs []string) library {
	t.Helper()
	var pools []ourredis.Pool
	for _, p := range redigoPools(t, addrs) {
		pools = append(pools, ourredigo.NewPool(p, pool.WithTimeout(readTimeout)))
	}
	rs := ours.New(pools...)
	t.Cleanup(func() { assert.NoError(t, rs.Close()) })
	return func(name string, options []option) mutex {
		var all []ours.Option
		for _, o := range options {
			all = append(all, o.ours)
		}
		return rs.NewMutex(name, all...)
	}
}

// words says what a program can find in an error of either library.
func words(err error) string {
	if err == nil {
		return "no error"
	}
	var all []string
	for word, is := range map[string]bool{
		"taken":         as[*theirs.ErrTaken](err) || as[*ours.ErrTaken](err),
		"node taken":    as[*theirs.ErrNodeTaken](err) || as[*ours.ErrNodeTaken](err),
		"node failed":   as[*theirs.RedisError](err) || as[*ours.RedisError](err),
		"failed":        errors.Is(err, theirs.ErrFailed) || errors.Is(err, ours.ErrFailed),
		"extend failed": errors.Is(err, theirs.ErrExtendFailed) || errors.Is(err, ours.ErrExtendFailed),
		"expired":       errors.Is(err, theirs.ErrLockAlreadyExpired) || errors.Is(err, ours.ErrLockAlreadyExpired),
		"canceled":      errors.Is(err, context.Canceled),
	} {
		if is {
			all = append(all, word)
		}
	}
	if all == nil {
		return "another error"
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func as[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}
