package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/go-redlock/redlocktest"
)

func TestBenchPrintsLatencies(t *testing.T) {
	_, env := clusterWith(t)
	status, out, errs := program(t.Context(), env, "bench", "--duration", "500ms", "-c", "2", "--fence")
	assert.Equal(t, exitOK, status, errs)
	assert.Regexp(t, `^3 nodes, 2 at once, [0-9.]+m?s: \d+ pairs, \d+ a second\n\n +mean +min +p50 +p90 +p99 +p99.9 +max\nacquire +[0-9.]+`, out)
	assert.Regexp(t, `\n  ≤ \S+ +\d+  █{50}\n`, out)
	assert.NotContains(t, out, "failed")
}

func TestBenchHasTheSameFieldsInJSONWhateverItMeasured(t *testing.T) {
	_, env := clusterWith(t)
	status, out, errs := program(t.Context(), env, "--json", "bench", "--duration", "200ms")
	assert.Equal(t, exitOK, status, errs)
	golden(t, "bench.json", out)
}

func TestBenchRefusesNonsense(t *testing.T) {
	for args, want := range map[string]string{
		"bench":                                  "no nodes",
		"--nodes a:1 bench x":                    `bench: unexpected argument "x"`,
		"--nodes a:1 bench -- x":                 `bench: unexpected argument "x"`,
		"--nodes a:1 bench --duration 0s":        "bench: duration of 0s",
		"--nodes a:1 bench -c 0":                 "bench: concurrency of 0",
		"--nodes a:1 bench --ttl 1ms":            "WithTTL(1ms)",
		"--nodes a:1 --node-timeout 0s bench":    "WithNodeTimeout(0s)",
		"--nodes a:1 --restart-guard -1s bench":  "WithRestartGuard(-1s)",
		"--nodes a:1 --tls-ca /none bench":       "--tls-ca: open /none",
		"--nodes a:1 --tls-ca /dev/null bench":   "--tls-ca: no certificate in /dev/null",
		"--nodes a:1 --tls-cert /dev/null bench": "--tls-cert and --tls-key",
	} {
		status, _, errs := program(t.Context(), nil, strings.Fields(args)...)
		assert.Equal(t, exitUsage, status, args)
		assert.Contains(t, errs, want, args)
	}
}

func TestBenchWithoutAQuorumFails(t *testing.T) {
	cluster := redlocktest.Start(t, 3)
	cluster.Node(0).Stop()
	cluster.Node(1).Stop()
	status, out, errs := program(t.Context(), nil, "bench", "--nodes", strings.Join(cluster.Addrs(), ","))
	assert.Equal(t, exitNoQuorum, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, "no quorum of nodes")
}
