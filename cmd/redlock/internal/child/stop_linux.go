//go:build linux && !mips && !mipsle && !mips64 && !mips64le

package child

// The part of siginfo about children is a union that holds pointers, too.
type childInfoAlignment = uintptr
