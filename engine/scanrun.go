package engine

import (
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
	for n := r.to - r.from; n > 0; n-- {
		row := r.to - n
		if r.back {
			row = r.from + n - 1
		}
		any, code, rank := false, -1, 0
		var v *merge.Verdict
		first, end := k.RowCells(row)
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
				if (at+i >= ch.To || at+i < ch.From) && !r.sp.Values.Load(ch, at+i, first) {
					return rows, false, rd.joined.Err()
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
	prefix := r.key[:r.prefix]
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
			if (from+i >= ch.To || from+i < ch.From) && !r.sp.Values.Load(ch, from+i, from+i) {
				return rows, false, rd.joined.Err()
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
