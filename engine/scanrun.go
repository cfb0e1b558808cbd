package engine

import (
	"github.com/rowandb/rowan/cell"
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
	if r.plain && r.sp.Keys.Lone() {
		return o.lone(rd, r)
	}
	k := r.sp.Keys
	ch := &r.sp.Chunk
	x := &o.cell
	for n := r.to - r.from; n > 0; n-- {
		row := r.to - n
		if r.back {
			row = r.from + n - 1
		}
		any, code, rank, over := false, -1, 0, false
		var col *column
		i, end := k.RowCells(row)
		for first := i; i < end; i++ {
			if c := k.Code(i); c != code {
				if col, err = r.column(rd, c); err != nil {
					return rows, false, err
				}
				code, rank = c, 0
				over = col.verdict.Versions <= 0
				x.Family, x.Qualifier = col.family, col.qualifier
			} else {
				rank++
			}
			if over {
				continue
			}
			ts := k.TS(i, row)
			if rank >= col.verdict.Versions || ts < col.verdict.Floor || col.verdict.Rule != nil && col.verdict.Rule.Drops(rank, ts, rd.asOf) {
				over = true
				continue
			}
			if (i >= ch.To || i < ch.From) && !r.sp.Values.Load(ch, i, first) {
				return rows, false, rd.joined.Err()
			}
			v0, v1 := k.ValueStart(i)-ch.Base, k.ValueEnd(i)-ch.Base
			if !any {
				any = true
				r.key = append(r.key[:r.prefix], k.Suffix(row)...)
				x.Row = r.key[:len(r.key):len(r.key)]
			}
			x.Timestamp, x.Value = Timestamp(ts), ch.Bytes[v0:v1:v1]
			if !o.lend(x) {
				return rows + 1, false, nil
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
	x := &o.cell
	x.Family, x.Qualifier = col.family, col.qualifier
	w := r.sp.Keys.Walk()
	ch := &r.sp.Chunk
	row, step := r.from, 1
	if r.back {
		row, step = r.to-1, -1
	}
	for n := r.to - r.from; n > 0; n-- {
		if (row >= ch.To || row < ch.From) && !r.sp.Values.Load(ch, row, row) {
			return rows, false, rd.joined.Err()
		}
		suffix, ts, v0, v1 := w.At(row)
		key := append(r.key[:r.prefix], suffix...)
		r.key = key
		x.Row, x.Timestamp = key[:len(key):len(key)], Timestamp(ts)
		v0, v1 = v0-ch.Base, v1-ch.Base
		x.Value = ch.Bytes[v0:v1:v1]
		rows++
		if !o.lend(x) {
			return rows, false, nil
		}
		row += step
	}
	return rows, true, nil
}

// run implements rowSink.
func (o *rowOutput) run(rd *reader, r *rowRun) (rows int64, more bool, err error) {
	k := r.sp.Keys
	for n := r.to - r.from; n > 0; n-- {
		row := r.to - n
		if r.back {
			row = r.from + n - 1
		}
		r.key = append(r.key[:r.prefix], k.Suffix(row)...)
		o.begin(rd, r.key)
		var ok bool
		if rd.buf, ok = r.sp.AppendRow(rd.buf[:0], row); !ok {
			return rows, false, rd.joined.Err()
		}
		code, rank, over := -1, 0, false
		var col *column
		for i := range rd.buf {
			e := &rd.buf[i]
			if c := int(e.Code); c != code {
				if col, err = r.column(rd, c); err != nil {
					return rows, false, err
				}
				code, rank, over = c, 0, false
			} else {
				rank++
			}
			v := &col.verdict
			if over = over || rank >= v.Versions || e.TS < v.Floor || v.Rule != nil && v.Rule.Drops(rank, e.TS, rd.asOf); over {
				continue
			}
			if !o.Put(e, false, "") {
				return rows, false, o.err
			}
		}
		if cells := o.cells(); len(cells) > 0 {
			rows++
			if !o.fn(Row{Key: string(r.key), Cells: cells}) || rows == r.limit {
				return rows, false, nil
			}
		}
	}
	return rows, true, nil
}
