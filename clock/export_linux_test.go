package clock

// BootTime is the clock that System reads.
const BootTime = bootTime
