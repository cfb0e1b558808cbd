//go:build !race

package fuzz

const defaultOps = 200_000

const mutantsRun = true
