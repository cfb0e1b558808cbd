package vfs

import (
	"errors"
	"syscall"
)

// NoSpace reports whether an error says that the file system is full, or a quota used up: what can be tried again when space
// is back.
func NoSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
