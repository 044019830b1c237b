//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package term

import "os"

// size does not know the size here.
func size(file *os.File) (columns, rows int, ok bool) { return 0, 0, isTerminal(file) }
