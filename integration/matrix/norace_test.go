//go:build !race

package matrix_test

const raceDetector = false
