package redlock

// Announced is what the fuzz test of announcements looks at.
var Announced = announced
