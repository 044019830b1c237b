// Command backend prints which kind of nodes the integration tests use on this machine, and why.
package main

import (
	"fmt"
	"os"

	"github.com/redquorum/go-redlock/integration/nodes"
)

func main() {
	line, err := nodes.Describe()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(line)
}
