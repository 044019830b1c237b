package redlockprom_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/go-redlock/redlock"
	"github.com/redquorum/go-redlock/redlockprom"
)

func TestNamesGetTheLabelThatTheUserMapsThemTo(t *testing.T) {
	kind := func(name string) string {
		kind, _, _ := strings.Cut(name, ":")
		return kind
	}
	c, read := newCollector(t, redlockprom.WithNames(kind))
	for _, names := range [][]string{{"invoice:1"}, {"invoice:2"}, {"mail:1"}, {"mail:1", "mail:2"}, {"invoice:1", "mail:1"}} {
		c.Observe(redlock.Acquired{Names: names})
	}
	for label, want := range map[string]float64{"invoice": 2, "mail": 2, "several": 1} {
		assert.InDelta(t, want, read.value("redlock_acquisitions_total{name="+label+",result=acquired}"), 0)
	}
}

func TestWithoutAMappingThereIsNoNameLabel(t *testing.T) {
	c, read := newCollector(t)
	c.Observe(redlock.Acquired{Names: []string{"invoice:1"}})
	assert.InDelta(t, 1, read.value("redlock_acquisitions_total{result=acquired}"), 0)
}

func TestAMappingThatMapsNothingTogetherIsCutOff(t *testing.T) {
	c, read := newCollector(t, redlockprom.WithNames(func(name string) string { return name }))
	for i := range 1000 {
		c.Observe(redlock.Acquired{Names: []string{fmt.Sprint(i)}})
	}
	labels := 0
	for name := range read.all() {
		if strings.HasPrefix(name, "redlock_wait_seconds_count") {
			labels++
		}
	}
	assert.Equal(t, 101, labels)
	assert.InDelta(t, 900, read.value("redlock_acquisitions_total{name=other,result=acquired}"), 0)
}
