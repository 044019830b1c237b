// Package house has no code of its own. Its tests hold the repository as a whole
// to what its design promises: what a consumer of the library gets compiled in,
// which package may know which, which clock is read where, and that what readers
// will copy works. Everything there is found by looking at the source, so a new
// file cannot be forgotten.
package house
