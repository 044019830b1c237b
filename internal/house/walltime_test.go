package house_test

import (
	"go/ast"
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Wall clock and monotonic time alike: what is measured by them would miss that
// the machine was suspended. Elapsed time comes from a clock.Clock.
var forbidden = map[string]bool{"Now": true, "Since": true, "Until": true}

// wallTimes returns where a file uses the clock of package time, called or
// handed on, whatever name it has imported the package under.
func (s source) wallTimes() []string {
	name := ""
	for _, spec := range s.file.Imports {
		if spec.Path.Value != `"time"` {
			continue
		}
		name = "time"
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			return []string{s.fset.Position(spec.Pos()).String() + ": a dot import of time hides its uses"}
		}
	}
	if name == "" {
		return nil
	}
	var found []string
	ast.Inspect(s.file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok || !forbidden[selector.Sel.Name] {
			return true
		}
		if pkg, ok := selector.X.(*ast.Ident); ok && pkg.Name == name {
			found = append(found, s.fset.Position(selector.Pos()).String()+": time."+selector.Sel.Name)
		}
		return true
	})
	return found
}

func TestLocksAndPoolsReadNoClockButTheirOwn(t *testing.T) {
	for _, s := range sources(t, "redlock", "pool") {
		assert.Empty(t, s.wallTimes(), "use the Clock")
	}
}

func TestTheSearchForWallTimesFindsThem(t *testing.T) {
	const body = "; var f = "
	for text, want := range map[string][]string{
		`import "time"` + body + `time.Now()`:              {"time.Now"},
		`import "time"` + body + `time.Now`:                {"time.Now"},
		`import "time"` + body + `time.Since(time.Time{})`: {"time.Since"},
		`import t "time"` + body + `t.Until(t.Now())`:      {"time.Until", "time.Now"},
		`import . "time"` + body + `Now()`:                 {"a dot import of time hides its uses"},
		`import "time"` + body + `time.Second`:             nil,
		`import "time"` + body + `clock.Now()`:             nil,
		`import t "time"` + body + `time.Now()`:            nil,
		`import "clock"` + body + `time.Now()`:             nil,
	} {
		var got []string
		for _, found := range parse(t, "some.go", "package some; "+text).wallTimes() {
			got = append(got, path.Base(found)[len("some.go:1:00: "):])
		}
		assert.Equal(t, want, got, text)
	}
}
