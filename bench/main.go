// Command bench compares go-redlock with other lock libraries, on the same nodes and in one run: all subjects of a
// row are connected first and then take turns, several short rounds each, so that whatever else the machine does
// meets all of them. It prints a Markdown report, and its progress on standard error.
//
//	go run .                        the whole comparison, some minutes
//	go run . -quick                 the same, seconds; the figures are only good to see that it works
//	go run . -rows 'pair|hung'      some rows
//	go run . -list                  what rows there are
//	go run . -docs ../docs          keep a whole run in benchmarks.md and benchmarks.svg there
//
// It starts redis-server processes of its own, or uses the nodes that REDLOCK_NODES names ("host:port,host:port,…");
// then it leaves out what needs nodes that it may stop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	quick := flag.Bool("quick", os.Getenv("REDLOCK_BENCH_QUICK") != "", "take seconds; also by REDLOCK_BENCH_QUICK=1")
	pattern := flag.String("rows", os.Getenv("REDLOCK_BENCH_ROWS"), "run the rows whose key matches this regular expression; also by REDLOCK_BENCH_ROWS")
	list := flag.Bool("list", false, "list the rows")
	docs := flag.String("docs", "", "keep the report of a whole run in `directory`")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	rows, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}

	began := time.Now()
	progress := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%3.0f s] "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
	}
	if *list {
		n := &nodes{healthy: make([]string, 7), sick: &cluster{addrs: make([]string, 5)}, far: make([]string, 5)}
		for _, r := range pairRows(ctx, n, true) {
			fmt.Printf("%-16s %s\n", r.key, r.title)
		}
		for _, s := range scenes(n, true, progress) {
			fmt.Printf("%-16s %s\n", s.key, s.title)
		}
		return nil
	}

	n, end, err := startNodes(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	progress("%d nodes are up", len(n.healthy))

	rep := &report{}
	load := loadAverage()
	for _, r := range pairRows(ctx, n, *quick) {
		switch {
		case !rows.MatchString(r.key):
		case r.skip != "":
			rep.skipped = append(rep.skipped, r.title+": "+r.skip)
		default:
			progress("%s: %s", r.key, r.title)
			results, err := measure(ctx, r, progress)
			if err != nil {
				return fmt.Errorf("%s: %w", r.key, err)
			}
			rep.outcomes = append(rep.outcomes, &outcome{r, results})
		}
	}
	for _, s := range scenes(n, *quick, progress) {
		switch {
		case !rows.MatchString(s.key):
		case s.skip != "":
			rep.skipped = append(rep.skipped, s.title+": "+s.skip)
		default:
			progress("%s: %s", s.key, s.title)
			figures, err := s.play(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", s.key, err)
			}
			for _, f := range figures {
				progress("    %s: %s, redsync %s", f.title, f.ours, f.theirs)
			}
			rep.figures = append(rep.figures, figures...)
		}
	}
	rep.heading = heading(n.healthy[0], load, began, *quick)
	progress("done")
	fmt.Print(rep.markdown())
	switch {
	case *docs == "":
		return nil
	case *quick || *pattern != "" || len(rep.skipped) > 0:
		progress("not kept: only a whole run is")
		return nil
	}
	return errors.Join(
		os.WriteFile(filepath.Join(*docs, "benchmarks.md"), []byte(rep.markdown()), 0o644),
		os.WriteFile(filepath.Join(*docs, "benchmarks.svg"), []byte(rep.svg()), 0o644),
	)
}

// startNodes returns the nodes and what ends them.
func startNodes(ctx context.Context) (_ *nodes, end func() error, err error) {
	var ends []func() error
	end = func() error {
		var errs []error
		for _, e := range slices.Backward(ends) {
			errs = append(errs, e())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	n := &nodes{}
	if named := os.Getenv("REDLOCK_NODES"); named != "" {
		n.healthy = strings.Split(named, ",")
	} else {
		healthy, err := startCluster(ctx, 7)
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, healthy.close)
		n.healthy = healthy.addrs
		if n.sick, err = startCluster(ctx, 5); err != nil {
			return nil, nil, err
		}
		ends = append(ends, n.sick.close)
	}
	n.far = slices.Clone(n.healthy[:min(5, len(n.healthy))])
	p, err := startProxy(n.far[0], 20*time.Millisecond)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, p.close)
	n.far[0] = p.addr()
	return n, end, nil
}

func netDialer() net.Dialer { return net.Dialer{Timeout: nodeTimeout} }

// heading says what a reader must know to judge the figures.
func heading(node, load string, began time.Time, quick bool) []string {
	cpu := "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`).FindSubmatch(text); m != nil {
			cpu = string(m[1])
		}
	}
	server := "unknown"
	if text, err := redis.String(command(node, "INFO", "server")); err == nil {
		if m := regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(text); m != nil {
			server = m[1]
		}
	}
	versions := []string{runtime.Version(), "redis-server " + server}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			for _, known := range []string{"redsync", "redislock", "redigo", "go-redis/v9"} {
				if strings.Contains(dep.Path, known) {
					versions = append(versions, dep.Path+" "+dep.Version)
				}
			}
		}
	}
	how := "`make bench`"
	if quick {
		how = "a quick run, whose figures mean little"
	}
	return []string{
		"# Benchmarks", "",
		"The last whole run of the comparison in [bench/](../bench). Written by " + how + "; do not edit.", "",
		"![time per pair, as a multiple of ours](benchmarks.svg)", "",
		fmt.Sprintf("- %s, took %s", began.UTC().Format("2006-01-02 15:04 UTC"), time.Since(began).Round(time.Second)),
		fmt.Sprintf("- %s, %d cores, %s/%s; load average %s at the start, %s at the end", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
			load, loadAverage()),
		"- " + strings.Join(versions, ", "), "",
		"Nodes and clients share the machine, over loopback; without network latency, what is compared is mostly CPU time,",
		"the nodes' included. Five nodes where nothing else is said. All subjects of a case are connected and warmed up, and then take",
		"turns, several short rounds each. Times are medians of the rounds, of elapsed time divided by operations of all",
		"goroutines; ratios are medians of the ratios in each round. More than 1 is slower than the first subject of the case.", "",
		"- Subjects make one attempt on a name that was never used before: TryAcquire, TryLockContext, Obtain. The name costs",
		"  each of them two allocations; only the floors use one name per goroutine again and again.",
		fmt.Sprintf("- The peers' clients have timeouts of %s for dialling, reading and writing, which is our default; redigo pools keep up to", nodeTimeout),
		fmt.Sprintf("  %d idle connections, go-redis has a connection per goroutine. Everything else is default. TTL %s everywhere.", idleConns, lockTTL),
		"- *redislock* is on one node: it has no quorum. The *floor* writes the commands that we send to one connection per node and",
		"  counts a quorum of replies, with nothing around it: one loop for all goroutines, in one piece per node; or, *goroutines*,",
		"  as many goroutines that share the connections.",
		"- A *hung* node is stopped with SIGSTOP: it accepts connections and never answers. *20 ms away* is a proxy that delays answers.",
		"- *Processes* in the second table are Lockers, or redsync clients, of their own in one process. redsync waits with its default",
		"  delays (50 to 250 ms) and, other than by default, without end. A redsync client that releases and locks again at once keeps the",
		"  lock while the others sleep, and few of them get it; with us everybody who waits is woken, and that is what contenders cost.",
	}
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:1], " ")
}
