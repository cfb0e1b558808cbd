//go:build race

package merge

const raceEnabled = true
