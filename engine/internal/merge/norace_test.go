//go:build !race

package merge

const raceEnabled = false
