// Package scripts holds the Lua that runs on the nodes, one file per script,
// and the typed calls and replies around it.
//
// Each script is atomic on its node and all-or-none over its keys. The files
// below lua/ say what each one takes and answers; this package is the only
// place that knows those encodings.
package scripts

import _ "embed"

// A Script is one of the Lua files. The set is fixed: see [All].
type Script struct {
	name   string
	source string
	index  int
}

// Name returns the script's name, the base name of its file.
func (s *Script) Name() string { return s.name }

// Source returns the Lua text.
func (s *Script) Source() string { return s.source }

// Index returns the script's position in [All].
func (s *Script) Index() int { return s.index }

var (
	//go:embed lua/acquire.lua
	acquireSource string
	//go:embed lua/renew.lua
	renewSource string
	//go:embed lua/release.lua
	releaseSource string
	//go:embed lua/confirm.lua
	confirmSource string
	//go:embed lua/inspect.lua
	inspectSource string
	//go:embed lua/scan.lua
	scanSource string
	//go:embed lua/announce.lua
	announceSource string
)

// Count is the number of scripts.
const Count = 7

var (
	acquire = &Script{"acquire", acquireSource, 0}
	renew   = &Script{"renew", renewSource, 1}
	release = &Script{"release", releaseSource, 2}
	confirm = &Script{"confirm", confirmSource, 3}

	inspect  = &Script{"inspect", inspectSource, 4}
	scan     = &Script{"scan", scanSource, 5}
	announce = &Script{"announce", announceSource, 6}

	all = [Count]*Script{acquire, renew, release, confirm, inspect, scan, announce}
)

// All returns every script, in the order of their indexes.
func All() []*Script { return all[:] }
