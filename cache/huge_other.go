//go:build darwin && !race

package cache

func adviseHuge([]byte) {}
