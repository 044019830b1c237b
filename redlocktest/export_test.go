package redlocktest

// ReadCommand is what a node reads commands with.
var ReadCommand = readCommand
