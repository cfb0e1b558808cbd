//go:build !race

package fuzz

const defaultOps = 500_000

const mutantsRun = true
