//go:build race

package fuzz

const defaultOps = 20_000
