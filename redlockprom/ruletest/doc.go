// Package ruletest has no code of its own. Its tests run the alert rules and the
// dashboard of redlockprom with Prometheus's own parser and engine, on what real
// Lockers show in virtual time. It is a module of its own so that users of
// redlockprom get none of Prometheus's server.
package ruletest
