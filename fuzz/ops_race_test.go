//go:build race

package fuzz

const defaultOps = 20_000

// mutantsRun: building the oracle over and over has nothing to do with races.
const mutantsRun = false
