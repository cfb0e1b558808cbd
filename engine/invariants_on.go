//go:build invariants

package engine

const invariants = true
