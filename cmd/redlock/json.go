package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/redquorum/go-redlock/redlock"
)

// The JSON of this program is for other programs: a field that is there keeps
// its name and its meaning. Times in it are milliseconds.

// failure is what --json prints to standard error instead of a message.
type failure struct {
	Error errorReport `json:"error"`
}

type errorReport struct {
	// Outcome is one word to branch on.
	Outcome string       `json:"outcome"`
	Status  int          `json:"status"`
	Message string       `json:"message"`
	Nodes   []nodeReport `json:"nodes,omitempty"`
}

// nodeReport is what one node contributed to a failure.
type nodeReport struct {
	Node  string `json:"node"`
	Error string `json:"error,omitempty"`
}

// outcome returns the word for an error that ends the program with a status.
func outcome(err error, status int) string {
	switch {
	case errors.As(err, new(*interruption)):
		return "interrupted"
	case errors.Is(err, errRunningOut), errors.Is(err, redlock.ErrLost):
		return "lost"
	case unanswered(err):
		return "no_quorum"
	case errors.Is(err, redlock.ErrTaken), errors.Is(err, context.DeadlineExceeded):
		return "taken"
	// Last: --conflict-exit-code can make these the status of what is above.
	case status == exitUsage, status == exitRunUsage:
		return "usage"
	case status == exitNotFound, status == exitNotExecutable:
		return "not_executable"
	}
	return "failed"
}

func describeError(err error, status int) errorReport {
	r := errorReport{Outcome: outcome(err, status), Status: status, Message: err.Error()}
	var failed *redlock.QuorumError
	if errors.As(err, &failed) {
		for i := range failed.Nodes {
			n := nodeReport{Node: failed.Nodes[i].Addr}
			if cause := failed.Nodes[i].Err; cause != nil {
				n.Error = cause.Error()
			}
			r.Nodes = append(r.Nodes, n)
		}
	}
	return r
}

// writeJSON writes one value on a line.
func writeJSON(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// nameReport is the name of a lock. Names are bytes, and JSON is text: each byte
// that is none becomes the same U+FFFD. Then Bytes tells which lock it is.
type nameReport struct {
	Name  string `json:"name"`
	Bytes []byte `json:"name_base64,omitempty"`
}

func describeName(name string) nameReport {
	if utf8.ValidString(name) {
		return nameReport{Name: name}
	}
	return nameReport{name, []byte(name)}
}

// milliseconds is a duration in JSON.
func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}
