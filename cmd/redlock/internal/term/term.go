// Package term decides whether output gets colour, and gives it.
package term

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// Colour is an ANSI colour, or another attribute of text.
type Colour int

// The attributes in use.
const (
	Bold    Colour = 1
	Dim     Colour = 2
	Red     Colour = 31
	Green   Colour = 32
	Yellow  Colour = 33
	Blue    Colour = 34
	Magenta Colour = 35
	Cyan    Colour = 36
)

// Painter colours text, or leaves it alone. Its zero value leaves it alone.
type Painter struct{ colours bool }

// Coloured returns a Painter that colours.
func Coloured() Painter { return Painter{colours: true} }

// For returns the Painter for w: it colours if w is a terminal and the
// environment has nothing against it (https://no-color.org, TERM=dumb).
func For(w io.Writer, env func(key string) (string, bool)) Painter {
	if noColour, _ := env("NO_COLOR"); noColour != "" {
		return Painter{}
	}
	if kind, _ := env("TERM"); kind == "dumb" {
		return Painter{}
	}
	return Painter{colours: isTerminal(w)}
}

// isTerminal takes every character device for a terminal. That is wrong for
// /dev/null, where it does not matter.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Paint returns text with the attributes. Pad text before painting it: what it
// adds has no width on the screen, but counts in every format verb.
func (p Painter) Paint(text string, attributes ...Colour) string {
	if !p.colours || text == "" || len(attributes) == 0 {
		return text
	}
	var b strings.Builder
	for _, a := range attributes {
		b.WriteString("\x1b[" + strconv.Itoa(int(a)) + "m")
	}
	b.WriteString(text + "\x1b[0m")
	return b.String()
}
