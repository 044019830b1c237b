package redlock

import "strings"

// escapeGlob makes a glob pattern that matches a text and nothing else.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// matchGlob reports whether a pattern matches a whole text, as in Redis, and in
// time that is bounded by the product of their lengths: only the last * is ever
// tried again, for what comes before it cannot do better.
func matchGlob(pattern, text string) bool {
	p, t := 0, 0
	star, from := -1, 0 // the last *, and where what it takes ends
	for t < len(text) {
		if p < len(pattern) {
			if pattern[p] == '*' {
				star, from = p, t
				p++
				continue
			}
			if n, ok := matchByte(pattern[p:], text[t]); ok {
				p += n
				t++
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, t = star+1, from
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchByte reports whether the beginning of a pattern, which is not a *,
// matches a byte, and how long that beginning is.
func matchByte(pattern string, b byte) (n int, ok bool) {
	switch pattern[0] {
	case '?':
		return 1, true
	case '[':
		return matchClass(pattern, b)
	case '\\':
		if len(pattern) > 1 {
			return 2, pattern[1] == b
		}
	}
	return 1, pattern[0] == b
}

// matchClass is matchByte for [abc], [^abc] and [a-c]. One that is not closed
// ends with the pattern.
func matchClass(pattern string, b byte) (n int, ok bool) {
	i := 1
	negated := i < len(pattern) && pattern[i] == '^'
	if negated {
		i++
	}
	for i < len(pattern) && pattern[i] != ']' {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			ok = ok || pattern[i+1] == b
			i += 2
		case i+2 < len(pattern) && pattern[i+1] == '-':
			low, high := min(pattern[i], pattern[i+2]), max(pattern[i], pattern[i+2])
			ok = ok || low <= b && b <= high
			i += 3
		default:
			ok = ok || pattern[i] == b
			i++
		}
	}
	return min(i+1, len(pattern)), ok != negated
}
