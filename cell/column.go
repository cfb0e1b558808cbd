package cell

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors for names and sizes outside the model. Each is wrapped with the offending value.
var (
	ErrFamilyName = errors.New("family name must be 1..64 bytes of [-_.a-zA-Z0-9]")
	ErrRowKey     = errors.New("row key must be 1..65536 bytes")
	ErrQualifier  = errors.New("qualifier must be at most 16384 bytes")
	ErrValue      = errors.New("value must be at most 100 MiB")
	ErrTimestamp  = errors.New("timestamp must be 0..MaxInt64 microseconds")
	ErrColumnKey  = errors.New("malformed column key")
)

// CheckFamily refuses a name that the model does not allow.
func CheckFamily(name string) error {
	if len(name) == 0 || len(name) > FamilyMax {
		return fmt.Errorf("%w: %.80q has %d bytes", ErrFamilyName, name, len(name))
	}
	for i := 0; i < len(name); i++ {
		if !familyByte(name[i]) {
			return fmt.Errorf("%w: %q", ErrFamilyName, name)
		}
	}
	return nil
}

func familyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

// AppendColumn appends the column key of (family, life, qualifier): family 0x00 life qualifier, life as a uvarint.
// A uvarint is prefix-free, so the columns of one life of one family are one contiguous range.
func AppendColumn(dst []byte, family string, life uint64, qualifier string) []byte {
	dst = AppendFamilyLife(dst, family, life)
	return append(dst, qualifier...)
}

// AppendFamilyLife appends the prefix that all columns of one life of a family share.
func AppendFamilyLife(dst []byte, family string, life uint64) []byte {
	dst = append(dst, family...)
	dst = append(dst, 0)
	return binary.AppendUvarint(dst, life)
}

// SplitColumn takes a column key apart. The results alias col.
func SplitColumn(col []byte) (family []byte, life uint64, qualifier []byte, err error) {
	i := bytes.IndexByte(col, 0)
	if i < 1 || i > FamilyMax {
		return nil, 0, nil, fmt.Errorf("%w: %.40x has no family", ErrColumnKey, col)
	}
	life, n := binary.Uvarint(col[i+1:])
	if n <= 0 {
		return nil, 0, nil, fmt.Errorf("%w: %.40x has no life", ErrColumnKey, col)
	}
	return col[:i], life, col[i+1+n:], nil
}

// FamilyRange returns the column range that holds every life of a family: ["family 0x00", "family 0x01").
func FamilyRange(family string) Range {
	from := append([]byte(family), 0)
	to := append([]byte(family), 1)
	return Range{From: from, To: to}
}

// PrefixEnd returns the smallest byte string above every string that starts with p, or nil when there is none.
func PrefixEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] != 0xff {
			end := append([]byte(nil), p[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}
