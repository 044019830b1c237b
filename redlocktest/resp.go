package redlocktest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A protocolError is what Redis says about bytes that are no command, before
// it closes the connection.
type protocolError struct{ what string }

func (e *protocolError) Error() string { return "ERR Protocol error: " + e.what }

// Limits of Redis.
const (
	maxArgs = 1 << 20
	maxBulk = 512 << 20
)

// readCommand reads the next command: an array of bulk strings, or words on a
// line, as people type them. It returns at least one word.
func readCommand(r *bufio.Reader) ([]string, error) {
	for {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(line, "*") {
			if words := strings.Fields(line); len(words) > 0 {
				return words, nil
			}
			continue
		}
		n, err := strconv.Atoi(line[1:])
		if err != nil || n > maxArgs {
			return nil, &protocolError{"invalid multibulk length"}
		}
		if n <= 0 {
			continue
		}
		var args []string
		for range n {
			arg, err := readBulk(r)
			if err != nil {
				return nil, err
			}
			args = append(args, arg)
		}
		return args, nil
	}
}

func readBulk(r *bufio.Reader) (string, error) {
	line, err := readLine(r)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(line, "$") {
		return "", &protocolError{fmt.Sprintf("expected '$', got %.1q", line)}
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > maxBulk {
		return "", &protocolError{"invalid bulk length"}
	}
	var data strings.Builder // grows with what arrives, not with what is promised
	if _, err := io.CopyN(&data, r, int64(n)); err != nil {
		return "", err
	}
	_, err = r.Discard(len("\r\n"))
	return data.String(), err
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
