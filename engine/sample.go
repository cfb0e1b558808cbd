package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rowandb/rowan/io/mapped"
	"github.com/rowandb/rowan/levels"
)

// RowSample is a place in a table.
type RowSample struct {
	// Key divides the rows: those below it lie before the place. It need not exist. "" stands for the end of the table.
	Key string
	// Offset is about how many bytes of table files hold the rows before the place.
	Offset int64
}

// samplesMax is the most places that SampleRowKeys returns, and filePieces how many it looks at in one file.
const (
	samplesMax = 256
	filePieces = 64
)

// SampleRowKeys returns places that divide the rows of a range into parts of about the same size, for readers that want to share
// the work: ascending keys, at most a few hundred, the last being the range's end with the bytes of all rows before it. Offsets
// count from the beginning of the table and are rough: rows that are not flushed yet are not counted, those of garbage are. No
// block is read for it.
func (t *Table) SampleRowKeys(ctx context.Context, rows RowRange) (samples []RowSample, err error) {
	spans, err := rows.spans(nil)
	if err != nil {
		return nil, err
	}
	db := t.db
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	defer db.noted(&err)
	defer mapped.Leave(mapped.Enter(), &err)
	st := db.states.pin()
	defer st.unref()
	table := st.tables[t.name]
	if table == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoTable, t.name)
	}
	var pieces []RowSample // a piece of a file: where it begins, and its bytes
	for i := range table.groups {
		for _, files := range st.version.Trees[table.groups[i].tree].Files {
			for _, f := range files {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				if pieces, err = db.pieces(pieces, f); err != nil {
					return nil, err
				}
			}
		}
	}
	slices.SortFunc(pieces, func(a, b RowSample) int { return strings.Compare(a.Key, b.Key) })
	total := int64(0)
	for _, p := range pieces {
		total += p.Offset
	}
	if len(spans) == 0 {
		return []RowSample{{Key: rows.end.key}}, nil // an empty range
	}
	end := RowSample{Key: string(spans[0].hi)}
	before, last := int64(0), int64(0)
	for i, p := range pieces {
		in := p.Key > string(spans[0].lo) && (spans[0].hi == nil || p.Key < end.Key)
		if in && before-last >= total/samplesMax && before > last && (i == 0 || pieces[i-1].Key != p.Key) {
			samples = append(samples, RowSample{p.Key, before})
			last = before
		}
		if spans[0].hi == nil || p.Key < end.Key {
			end.Offset += p.Offset
		}
		before += p.Offset
	}
	return append(samples, end), nil
}

// pieces appends the pieces of a file.
func (db *DB) pieces(dst []RowSample, f *levels.File) ([]RowSample, error) {
	r, err := db.files.table(f)
	if err != nil {
		return dst, err
	}
	at := len(dst)
	r.Split(filePieces, func(row []byte, before int64) {
		if n := len(dst); n > at {
			dst[n-1].Offset += before
		}
		dst = append(dst, RowSample{string(row), -before})
	})
	if n := len(dst); n > at {
		dst[n-1].Offset += f.Size
	}
	return dst, nil
}
