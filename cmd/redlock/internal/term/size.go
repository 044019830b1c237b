package term

import "os"

// What a terminal is taken to have that does not say.
const (
	defaultColumns = 80
	defaultRows    = 24
)

// Size returns the size of the terminal that stream, an [os.File], is; ok is
// false if it is none.
func Size(stream any) (columns, rows int, ok bool) {
	file, isFile := stream.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	columns, rows, ok = size(file)
	if ok && (columns == 0 || rows == 0) {
		columns, rows = defaultColumns, defaultRows
	}
	return columns, rows, ok
}
