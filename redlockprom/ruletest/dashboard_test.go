package ruletest_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dashboard is what matters of Grafana's format.
type dashboard struct {
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("../dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

func TestEveryMetricAndLabelThatTheDashboardUsesExists(t *testing.T) {
	seen := everything(t)
	variables := strings.NewReplacer("$__rate_interval", "1m", "$locker", ".*")
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			requireSelects(t, seen, variables.Replace(target.Expr))
		}
	}
}

func TestEveryPanelShowsSomethingWhileAllIsWell(t *testing.T) {
	seen, engine := everything(t), newEngine(t)
	variables := strings.NewReplacer("$__rate_interval", "1m", "$locker", ".*")
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			if strings.HasSuffix(target.Expr, "> 0") {
				continue // what did not happen is left out
			}
			assert.NotEmpty(t, seen.evaluate(t, engine, variables.Replace(target.Expr)), panel.Title)
		}
	}
}

func TestThePanelsOfTheDashboardLieBesideEachOther(t *testing.T) {
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, panel := range readDashboard(t).Panels {
		assert.False(t, ids[panel.ID], "two panels %d", panel.ID)
		ids[panel.ID] = true
		if panel.Type != "row" {
			assert.NotEmpty(t, panel.Targets, panel.Title)
			assert.NotEmpty(t, panel.Description, panel.Title)
		}
		at := panel.GridPos
		assert.LessOrEqual(t, at.X+at.W, 24, panel.Title)
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				assert.Empty(t, cells[[2]int{x, y}], "under %s", panel.Title)
				cells[[2]int{x, y}] = panel.Title
			}
		}
	}
}
