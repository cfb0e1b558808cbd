package engine

import (
	"unsafe"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/engine/internal/merge"
)

// learn finds out about column number code of the block.
func (r *rowRun) learn(rd *reader, c *column, code int) (err error) {
	col := r.sp.Keys.Col(code)
	if c.verdict, err = rd.joined.Judge(col); err != nil {
		return err
	}
	if c.family, c.life, c.qualifier, err = cell.SplitColumn(col); err != nil {
		return err
	}
	c.family, c.qualifier = c.family[:len(c.family):len(c.family)], c.qualifier[:len(c.qualifier):len(c.qualifier)]
	c.known = true
	return nil
}

// run implements rowSink.
func (o *cellOutput) run(rd *reader, r *rowRun) (rows int64, more bool, err error) {
	k := r.sp.Keys
	if r.plain && k.Lone() {
		return o.lone(rd, r)
	}
	ch, x, strip, fn := &r.sp.Chunk, &o.cell, &r.strip, o.lender()
	middle := ch.Middle()
	for n := r.to - r.from; n > 0; n-- {
		row := r.to - n
		if r.back {
			row = r.from + n - 1
		}
		any, code, rank := false, -1, 0
		var v *merge.Verdict
		first, end := k.RowCells(row)
		if first <= middle && middle < end {
			r.sp.Values.Ahead(middle, first)
		}
		for at := first; at < end; at += strip.N {
			k.Take(strip, row, at, end)
			for i := 0; i < strip.N && i < len(strip.Codes); i++ {
				if c := int(strip.Codes[i]); c != code {
					col, err := r.column(rd, c)
					if err != nil {
						return rows, false, err
					}
					code, rank, v = c, 0, &col.verdict
					x.Family, x.Qualifier = col.family, col.qualifier
				} else {
					rank++
				}
				ts := strip.TS[i]
				if rank >= v.Versions || ts < v.Floor || v.Rule != nil && v.Rule.Drops(rank, ts, rd.asOf) {
					continue // as all older ones of the column
				}
				if at+i >= ch.To || at+i < ch.From {
					if !r.sp.Values.Load(ch, at+i, first) {
						return rows, false, rd.joined.Err()
					}
					middle = ch.Middle()
				}
				if !any {
					any = true
					r.key = append(r.key[:r.prefix], k.Suffix(row)...)
					x.Row = r.key[:len(r.key):len(r.key)]
				}
				v0, v1 := strip.Ends[i]-ch.Base, strip.Ends[i+1]-ch.Base
				x.Timestamp, x.Value = Timestamp(ts), ch.Bytes[v0:v1:v1]
				if !fn(x) {
					return rows + 1, false, nil
				}
			}
		}
		if any {
			if rows++; rows == r.limit {
				break
			}
		}
	}
	return rows, true, nil
}

// lone is run where rows have one cell each, all of one column, and no rule drops any.
func (o *cellOutput) lone(rd *reader, r *rowRun) (rows int64, more bool, err error) {
	if r.limit > 0 && int64(r.to-r.from) > r.limit {
		if r.back {
			r.from = r.to - int(r.limit)
		} else {
			r.to = r.from + int(r.limit)
		}
	}
	if r.from >= r.to {
		return 0, true, nil
	}
	col, err := r.column(rd, 0)
	if err != nil {
		return 0, false, err
	}
	k, ch, x, strip, fn := r.sp.Keys, &r.sp.Chunk, &o.cell, &r.strip, o.lender()
	x.Family, x.Qualifier = col.family, col.qualifier
	prefix, middle := r.key[:r.prefix], ch.Middle()
	for left := r.to - r.from; left > 0; left -= strip.N {
		from, i, end, step := r.to-left, 0, 0, 1
		if r.back {
			from = max(r.from, r.from+left-len(strip.TS))
			k.TakeRows(strip, from, r.from+left)
			i, end, step = strip.N-1, -1, -1
		} else {
			k.TakeRows(strip, from, r.to)
			end = strip.N
		}
		for ; i != end && i < len(strip.TS); i += step {
			if from+i >= ch.To || from+i < ch.From {
				if !r.sp.Values.Load(ch, from+i, from+i) {
					return rows, false, rd.joined.Err()
				}
				middle = ch.Middle()
			}
			if from+i == middle {
				r.sp.Values.Ahead(middle, middle)
			}
			key := k.Key(prefix, strip, i)
			v0, v1 := strip.Ends[i]-ch.Base, strip.Ends[i+1]-ch.Base
			x.Row, x.Timestamp, x.Value = key[:len(key):len(key)], Timestamp(strip.TS[i]), ch.Bytes[v0:v1:v1]
			rows++
			if !fn(x) {
				return rows, false, nil
			}
		}
	}
	return rows, true, nil
}

// run implements rowSink. A row takes two pieces of memory, one for its cells and one for all bytes but the names of columns, which
// the rows of a block share.
func (o *rowOutput) run(rd *reader, r *rowRun) (rows int64, more bool, err error) {
	k := r.sp.Keys
	shared := 4*k.Cols <= k.Cells // else names are better copied with the cells
	for n := r.to - r.from; n > 0; n-- {
		row := r.to - n
		if r.back {
			row = r.from + n - 1
		}
		var ok bool
		if rd.buf, ok = r.sp.AppendRow(rd.buf[:0], row); !ok {
			return rows, false, rd.joined.Err()
		}
		kept, bytes, held, err := o.keep(rd, r, rd.buf, shared)
		if err != nil {
			return rows, false, err
		}
		if len(kept) == 0 {
			continue
		}
		r.key = append(r.key[:r.prefix], k.Suffix(row)...)
		if bytes > rd.db.opts.RowBytesMax {
			return rows, false, rowTooLarge(r.key, rd.db.opts.RowBytesMax)
		}
		data := append(make([]byte, 0, int64(len(r.key))+held), r.key...)
		out := Row{Key: unsafe.String(&data[0], len(data)), Cells: make([]Cell, len(kept))}
		for i := range kept {
			e, c := &kept[i], &out.Cells[i]
			col := &r.columns[e.Code]
			c.Family, c.Qualifier, c.Timestamp = col.familyName, col.qualifierName, Timestamp(e.TS)
			at := len(data)
			if !shared && len(col.qualifier) > 0 {
				data = append(data, col.qualifier...)
				c.Qualifier = unsafe.String(&data[at], len(col.qualifier))
				at = len(data)
			}
			data = append(data, e.Value...)
			c.Value = data[at:len(data):len(data)]
		}
		rows++
		if !o.fn(out) {
			return rows, false, nil
		}
		if rows == r.limit {
			break
		}
	}
	return rows, true, nil
}

// keep moves the cells that the rules leave to the front of cells. bytes is what they count against Options.RowBytesMax, held
// the bytes of a copy: without names if those are shared.
func (o *rowOutput) keep(rd *reader, r *rowRun, cells []cell.Cell, shared bool) (kept []cell.Cell, bytes, held int64, err error) {
	code, rank := -1, 0
	var col *column
	kept = cells[:0]
	for i := range cells {
		e := &cells[i]
		if c := int(e.Code); c != code {
			if col, err = r.column(rd, c); err != nil {
				return nil, 0, 0, err
			}
			if !col.named {
				col.familyName, col.named = o.family(col.family, col.life), true
				if shared {
					col.qualifierName = string(col.qualifier)
				}
			}
			code, rank = c, 0
		} else {
			rank++
		}
		v := &col.verdict
		if rank >= v.Versions || e.TS < v.Floor || v.Rule != nil && v.Rule.Drops(rank, e.TS, rd.asOf) {
			continue // as all older ones of the column
		}
		if len(kept) != i {
			cells[len(kept)] = *e
		}
		kept = cells[:len(kept)+1]
		bytes += int64(len(col.qualifier) + len(e.Value))
		held += int64(len(e.Value))
		if !shared {
			held += int64(len(col.qualifier))
		}
	}
	return kept, bytes, held, nil
}
