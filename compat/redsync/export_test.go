package redsync

// NewOn is New on a clock that a test made in its bubble.
var NewOn = newRedsync
