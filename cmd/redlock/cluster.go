package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/redquorum/go-redlock/redlock"
)

const (
	flagNodes        = "nodes"
	flagNodeTimeout  = "node-timeout"
	flagKeyPrefix    = "key-prefix"
	flagRestartGuard = "restart-guard"
	flagTLSCA        = "tls-ca"
	flagTLSCert      = "tls-cert"
	flagTLSKey       = "tls-key"
)

// clusterFlags are what says which nodes there are and how to reach them, with
// the same meaning for every subcommand.
func clusterFlags(env environ) []cli.Flag {
	source := func(key string) cli.ValueSourceChain { return cli.NewValueSourceChain(env.source(key)) }
	return []cli.Flag{
		&cli.StringSliceFlag{
			Name:    flagNodes,
			Usage:   "the nodes, comma separated: host:port, redis://[[user]:password@]host, rediss:// (TLS) or unix://",
			Sources: source("REDLOCK_NODES"),
		},
		&cli.DurationFlag{
			Name: flagNodeTimeout, Usage: "how long one node may take to answer",
			Value: redlock.DefaultNodeTimeout, Sources: source("REDLOCK_NODE_TIMEOUT"),
		},
		&cli.StringFlag{
			Name: flagKeyPrefix, Usage: "what is put before each name to make its key",
			Sources: source("REDLOCK_KEY_PREFIX"),
		},
		&cli.DurationFlag{
			Name: flagRestartGuard, Usage: "let no node grant locks that restarted less than this ago; the longest TTL or minimum hold in use",
			Sources: source("REDLOCK_RESTART_GUARD"), HideDefault: true,
		},
		&cli.StringFlag{
			Name: flagTLSCA, Usage: "`FILE` with the certificates to trust instead of the system's",
			Sources: source("REDLOCK_TLS_CA"), TakesFile: true,
		},
		&cli.StringFlag{
			Name: flagTLSCert, Usage: "`FILE` with the certificate to show to the nodes",
			Sources: source("REDLOCK_TLS_CERT"), TakesFile: true,
		},
		&cli.StringFlag{
			Name: flagTLSKey, Usage: "`FILE` with its private key",
			Sources: source("REDLOCK_TLS_KEY"), TakesFile: true,
		},
	}
}

// nodes returns the addresses of the nodes; none if none were named.
func nodes(c *cli.Command) []string {
	var addrs []string
	for _, addr := range c.StringSlice(flagNodes) {
		if addr = strings.TrimSpace(addr); addr != "" {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// connect returns a Locker on the nodes that the flags name, and that logs to
// log.
func connect(c *cli.Command, log *slog.Logger, opts ...redlock.Option) (*redlock.Locker, error) {
	addrs := nodes(c)
	if len(addrs) == 0 {
		return nil, usage("no nodes: give --%s or set REDLOCK_NODES", flagNodes)
	}
	opts = append(opts,
		redlock.WithLogger(log),
		redlock.WithNodeTimeout(c.Duration(flagNodeTimeout)),
		redlock.WithKeyPrefix(c.String(flagKeyPrefix)),
		redlock.WithRestartGuard(c.Duration(flagRestartGuard)),
	)
	config, err := tlsConfig(c)
	if err != nil {
		return nil, err
	}
	if config != nil {
		opts = append(opts, redlock.WithTLSConfig(config))
	}
	return redlock.New(addrs, opts...)
}

// tlsConfig returns nil unless a flag asks for more than rediss:// does.
func tlsConfig(c *cli.Command) (*tls.Config, error) {
	ca, cert, key := c.String(flagTLSCA), c.String(flagTLSCert), c.String(flagTLSKey)
	if ca == "" && cert == "" && key == "" {
		return nil, nil //nolint:nilnil // no configuration is a valid one
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, usage("--%s: %w", flagTLSCA, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usage("--%s: no certificate in %s", flagTLSCA, ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, usage("--%s and --%s: %w", flagTLSCert, flagTLSKey, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// logger returns where the library's log and ours go: nowhere, unless
// --verbose asks for it.
func logger(c *cli.Command) *slog.Logger {
	stderr := c.Root().ErrWriter
	switch {
	case !c.Bool(flagVerbose):
		return slog.New(slog.DiscardHandler)
	case c.Bool(flagJSON):
		return slog.New(slog.NewJSONHandler(stderr, nil))
	}
	return slog.New(slog.NewTextHandler(stderr, nil))
}

// plural returns "1 node" or "3 nodes".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
