package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

func cpus() int { return runtime.NumCPU() }

const memoryRoot = "/sys/fs/cgroup/memory"

// cgroupDir is the memory cgroup of this process's children.
func cgroupDir() string { return fmt.Sprintf("%s/rowan-compare-%d", memoryRoot, os.Getpid()) }

// makeCgroup makes a memory cgroup with a limit and returns what removes it.
func makeCgroup(limit int64) (func(), error) {
	dir := cgroupDir()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("a memory cgroup (version 1) is needed, and the right to make one: %w", err)
	}
	remove := func() { os.Remove(dir) } // it is empty: a stale one takes nothing
	if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.FormatInt(limit, 10)), 0o644); err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

func enterCgroup(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// dropCaches forgets all file data in memory.
func dropCaches() error {
	syscall.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o200); err != nil {
		return fmt.Errorf("cold reads need the right to drop caches: %w", err)
	}
	return nil
}
