package redlockprom_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/go-redlock/redlocktest"
)

func TestThePackageDocumentationListsEveryMetricWithItsLabels(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	documented := make(map[string]string)
	for _, match := range regexp.MustCompile(`(?m)^//\t(redlock_\w+)(?:\{([\w,]+)\})? `).FindAllStringSubmatch(string(text), -1) {
		documented[match[1]] = match[2]
	}
	shown := make(map[string]string)
	synctest.Test(t, func(t *testing.T) {
		cluster := redlocktest.StartPiped(t, 3)
		c, read := newCollector(t)
		newLocker(t, cluster, c)
		families, err := read.from.Gather()
		require.NoError(t, err)
		for _, family := range families {
			var labels []string
			for _, label := range family.GetMetric()[0].GetLabel() {
				if label.GetName() != "locker" {
					labels = append(labels, label.GetName())
				}
			}
			slices.Sort(labels)
			shown[family.GetName()] = strings.Join(labels, ",")
		}
	})
	for name, labels := range documented {
		sorted := strings.Split(labels, ",")
		slices.Sort(sorted)
		documented[name] = strings.Join(sorted, ",")
	}
	assert.Equal(t, documented, shown)
}
