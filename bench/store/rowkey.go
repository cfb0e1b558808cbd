package store

import (
	"encoding/binary"
	"fmt"
)

// The natural key of a cell: row, 0, family, 0, qualifier, 0, the complement of the timestamp in big-endian order. Keys sort as
// cells do.

func appendColumn(key, row []byte, family, qualifier string) []byte {
	key = append(append(key, row...), 0)
	key = append(append(key, family...), 0)
	return append(append(key, qualifier...), 0)
}

func appendCell(key []byte, c *Cell) []byte {
	return binary.BigEndian.AppendUint64(appendColumn(key, c.Row, c.Family, c.Qualifier), ^uint64(c.Micros))
}

// names finds the strings of families and qualifiers without making new ones.
var names = func() map[string]string {
	m := map[string]string{}
	for _, s := range append(append([]string(nil), Families...), Qualifiers...) {
		m[s] = s
	}
	return m
}()

// decodeCell is the reverse of appendCell; the row is a part of key.
func decodeCell(key []byte, c *Cell) error {
	const size = RowBytes + 1 + 2 + 1 + 2 + 1 + 8
	if len(key) != size || key[RowBytes]|key[RowBytes+3]|key[RowBytes+6] != 0 {
		return fmt.Errorf("%q is no key of a cell", key)
	}
	c.Row = key[:RowBytes]
	c.Family = names[string(key[RowBytes+1:RowBytes+3])]
	c.Qualifier = names[string(key[RowBytes+4:RowBytes+6])]
	c.Micros = int64(^binary.BigEndian.Uint64(key[RowBytes+7:]))
	return nil
}

// columnBytes is the part of a key that names row and column.
const columnBytes = RowBytes + 1 + 2 + 1 + 2 + 1
