package redlock

import "strings"

// escapeGlob makes a glob pattern that matches a text and nothing else.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
