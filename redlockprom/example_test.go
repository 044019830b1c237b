package redlockprom_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlockprom"
	"github.com/redquorum/go-redlock/redlocktest"
)

func Example() {
	cluster, err := redlocktest.New(3) // yours are somewhere else
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	registry := prometheus.NewRegistry()

	kind := func(name string) string { kind, _, _ := strings.Cut(name, ":"); return kind }
	metrics := redlockprom.New("billing", redlockprom.WithNames(kind))
	registry.MustRegister(metrics)
	locker, err := redlock.New(cluster.Addrs(), redlock.WithObserver(metrics))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locker.Close() }()
	metrics.Track(locker)

	for _, name := range []string{"invoice:17", "invoice:18"} {
		err := locker.Do(context.Background(), name, func(context.Context, *redlock.Lock) error { return nil })
		if err != nil {
			fmt.Println(err)
			return
		}
	}

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() != "redlock_acquisitions_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if count := metric.GetCounter().GetValue(); count > 0 {
				for _, label := range metric.GetLabel() {
					fmt.Print(label.GetName(), "=", label.GetValue(), " ")
				}
				fmt.Println(count)
			}
		}
	}
	// Output:
	// locker=billing name=invoice result=acquired 2
}
