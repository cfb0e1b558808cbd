// Package damage is the one kind of error for bytes that are not what was written: it names the file, the part and the
// offset, and answers errors.Is(err, damage.Err) however deeply it is wrapped.
package damage

import (
	"errors"
	"fmt"
)

// Err marks every damage error.
var Err = errors.New("damaged")

// ErrFormat marks a file or directory of a format that this build does not read (older, newer or foreign).
var ErrFormat = errors.New("unknown format")

// Error says where bytes are wrong and what was expected. Offset is in bytes from the start of the file, -1 if unknown.
type Error struct {
	File   string // path or name; filled in by the first caller that knows it
	Part   string // "footer", "block 17 keys", "record", ...
	Offset int64
	Detail string
	Cause  error // may be nil
}

// New returns an error without a file name, for decoders that only see bytes; a caller adds the name with At.
func New(part string, offset int64, format string, args ...any) *Error {
	return &Error{Part: part, Offset: offset, Detail: fmt.Sprintf(format, args...)}
}

// At names the file of err, if err is a damage error without one, and moves its offset by base. Other errors are wrapped
// with the file name. A nil err stays nil.
func At(err error, file string, base int64) error {
	if err == nil {
		return nil
	}
	var d *Error
	if errors.As(err, &d) {
		if d.File != "" {
			return err
		}
		c := *d
		c.File = file
		if c.Offset >= 0 {
			c.Offset += base
		}
		return &c
	}
	return fmt.Errorf("%s: %w", file, err)
}

func (e *Error) Error() string {
	s := "damaged"
	if e.File != "" {
		s = e.File + ": " + s
	}
	if e.Part != "" {
		s += " " + e.Part
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf(" at offset %d", e.Offset)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Is makes every Error match Err.
func (e *Error) Is(target error) bool { return target == Err }

func (e *Error) Unwrap() error { return e.Cause }
