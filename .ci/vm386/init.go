// The only process of the 32-bit test machine: it runs the test binaries that it finds and reports on the console.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// trapped reports whether a test binary was ended by a trap without having failed, panicked or said anything: that was seen once, of a
// package that passed before and after, and no test can end so by itself. What is wrong with the tests shows in the next attempt too.
func trapped(out []byte, err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTRAP &&
		!bytes.Contains(out, []byte("--- FAIL")) && !bytes.Contains(out, []byte("panic:")) && !bytes.Contains(out, []byte("fatal"))
}

func main() {
	for _, m := range []string{"proc", "devtmpfs", "tmpfs"} {
		dir := map[string]string{"proc": "/proc", "devtmpfs": "/dev", "tmpfs": "/tmp"}[m]
		if err := syscall.Mount(m, dir, m, 0, ""); err != nil {
			fmt.Println("mount", m, err)
		}
	}
	list, _ := filepath.Glob("/repo/*.test386")
	var mu sync.Mutex // guards bad and the console
	bad := 0
	test := func(name string) {
		pkg := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(name), ".test386"), "~", "/")
		args := []string{"-test.v", "-test.short", "-test.timeout=10m"}
		if run, err := os.ReadFile(name + ".run"); err == nil {
			args = append(args, "-test.run="+strings.TrimSpace(string(run)))
		}
		began := time.Now()
		attempt := func() ([]byte, error) {
			c := exec.Command(name, args...)
			c.Dir = filepath.Join("/repo", pkg)
			c.Env = []string{"HOME=/tmp", "TMPDIR=/tmp", "PATH=/bin", "ROWAN_OPS_SHARE=0.02"}
			return c.CombinedOutput()
		}
		out, err := attempt()
		if trapped(out, err) {
			again, err2 := attempt()
			out, err = append(append(out, "AGAIN\t"+pkg+": "+err.Error()+" without a word of its own\n"...), again...), err2
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Print(string(out))
		if err != nil {
			bad++
			fmt.Printf("FAIL\t%s\t%v\n", pkg, err)
			return
		}
		fmt.Printf("ok\t%s\t%.1fs\n", pkg, time.Since(began).Seconds())
	}
	next := make(chan string)
	var wg sync.WaitGroup
	for range 2 { // processors
		wg.Go(func() {
			for name := range next {
				test(name)
			}
		})
	}
	for _, name := range list {
		next <- name
	}
	close(next)
	wg.Wait()
	fmt.Printf("386 machine: %d packages, %d failed\n", len(list), bad)
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}
