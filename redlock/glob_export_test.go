package redlock

// MatchGlob and EscapeGlob are what the tests of patterns look at.
var (
	MatchGlob  = matchGlob
	EscapeGlob = escapeGlob
)
