package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/rowandb/rowan/engine"
)

// writer changes and reads rows that nobody else touches, so that its model says at any time what they hold.
type writer struct {
	l    *loader
	id   int
	rng  *rand.Rand
	ops  int // operations so far, for messages
	ts   engine.Timestamp
	rows map[string]model // by table

	snap *engine.Snapshot
	then map[string]model // what snap shows
}

// model is a table's rows; rows are never changed in place, so that a copy of the map is a snapshot.
type model map[string]row

// row maps "family:qualifier" to versions, the newest first.
type row map[string][]version

type version struct {
	ts   engine.Timestamp
	size int
}

var ctx = context.Background()

// prefix begins all row keys of a writer.
func prefix(id int) string { return fmt.Sprintf("w%03d-", id) }

func newWriter(l *loader, id int) *writer {
	w := &writer{l: l, id: id, rng: rand.New(rand.NewPCG(l.o.seed, uint64(id))), rows: map[string]model{}}
	for _, t := range tables {
		w.rows[t] = model{}
	}
	return w
}

// loop works until it is told to stop, or something is wrong.
func (w *writer) loop() {
	for !w.l.stop.Load() {
		w.l.work.RLock()
		err := w.operation()
		w.l.work.RUnlock()
		if err != nil {
			err = fmt.Errorf("writer %d, operation %d: %w", w.id, w.ops, err)
			w.l.first.CompareAndSwap(nil, &err)
			w.l.stop.Store(true)
			return
		}
	}
}

func (w *writer) operation() error {
	w.ops++
	table := tables[w.rng.IntN(len(tables))]
	switch n := w.rng.IntN(100); {
	case n < 70:
		return w.batch()
	case n < 96:
		return w.readRow(table, w.key())
	case n < 98:
		return w.scan(table, w.rows[table], w.rng.IntN(2) == 0)
	default:
		return w.snapshot(table)
	}
}

func (w *writer) key() string { return fmt.Sprintf("%s%05d", prefix(w.id), w.rng.IntN(w.l.o.rows)) }

// appendValue appends the value of a cell: it follows from its place.
func (w *writer) appendValue(dst []byte, ts engine.Timestamp, size int) []byte {
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(ts)*0x9e3779b97f4a7c15+uint64(w.id))
	for range size {
		dst = append(dst, seed[len(dst)%8]^byte(len(dst)>>3))
	}
	return dst
}

// draft is a batch that was drawn, with what the model holds once it is applied.
type draft struct {
	parts          []part
	next           map[string]model
	sync           bool
	changes, bytes int
}

type part struct {
	table, key string
	m          *engine.Mutation
}

// draft draws a batch that changes one to three rows of both tables. Without a store, and whether it is applied or not, the same
// draws follow.
func (w *writer) draft() *draft {
	d := &draft{next: map[string]model{}}
	for _, t := range tables {
		d.next[t] = model{}
		for range 1 + w.rng.IntN(3) {
			key := w.key()
			r, changed := d.next[t][key]
			if !changed {
				r = maps.Clone(w.rows[t][key])
			}
			if r == nil {
				r = row{}
			}
			m := engine.NewMutation()
			for range 1 + w.rng.IntN(4) {
				d.bytes += w.change(m, r)
				d.changes++
			}
			d.next[t][key] = r
			d.parts = append(d.parts, part{t, key, m})
		}
	}
	d.sync = w.rng.IntN(20) == 0
	return d
}

// apply applies a draft to the store, with more changes if there are any.
func (d *draft) apply(db *engine.DB, more ...part) error {
	b := engine.NewBatch()
	for _, p := range append(d.parts, more...) {
		b.Add(db.Table(p.table), p.key, p.m)
	}
	var opts []engine.ApplyOption
	if !d.sync {
		opts = append(opts, engine.NoSync)
	}
	return db.Apply(ctx, b, opts...)
}

// accept makes the draft's changes in the model.
func (w *writer) accept(d *draft) {
	for t, rows := range d.next {
		maps.Copy(w.rows[t], rows)
	}
}

// batch draws a batch and applies it.
func (w *writer) batch() error {
	d := w.draft()
	if err := d.apply(w.l.db); err != nil {
		return err
	}
	if w.id == 0 && w.ops >= w.l.o.lie && w.l.o.lie >= 0 {
		return nil
	}
	w.accept(d)
	w.l.n.batches.Add(1)
	w.l.n.changes.Add(int64(d.changes))
	w.l.n.bytes.Add(int64(d.bytes))
	return nil
}

// change adds one change to a mutation and makes it in the model.
func (w *writer) change(m *engine.Mutation, r row) (bytes int) {
	family, q := "few", fmt.Sprint("q", w.rng.IntN(4))
	if w.rng.IntN(3) == 0 {
		family = "all"
	}
	col := family + ":" + q
	switch n := w.rng.IntN(40); {
	case n == 0:
		m.DeleteRow()
		clear(r)
	case n == 1:
		m.DeleteCellsInFamily(family)
		maps.DeleteFunc(r, func(c string, _ []version) bool { return strings.HasPrefix(c, family+":") })
	case n < 5:
		m.DeleteCellsInColumn(family, q)
		delete(r, col)
	case n < 8:
		col = "all:" + q // in the other family a gap would have to follow the rule of what was collected before
		hi := 1 + w.rng.Int64N(int64(w.ts)+2)
		lo := max(0, hi-1-w.rng.Int64N(hi))
		m.DeleteTimestampRange("all", q, engine.Timestamp(lo), engine.Timestamp(hi))
		r[col] = slices.DeleteFunc(slices.Clone(r[col]), func(v version) bool { return int64(v.ts) >= lo && int64(v.ts) < hi })
		if len(r[col]) == 0 {
			delete(r, col)
		}
	default:
		w.ts++
		v := version{w.ts, w.rng.IntN(1 + w.rng.IntN(w.l.o.value))}
		if old := r[col]; len(old) > 0 && w.rng.IntN(6) == 0 {
			v.ts = old[0].ts // the same version again
		}
		m.Set(family, q, v.ts, w.appendValue(nil, v.ts, v.size))
		bytes = v.size
		vs := append([]version{v}, slices.DeleteFunc(slices.Clone(r[col]), func(o version) bool { return o.ts == v.ts })...)
		if family == "few" && len(vs) > versionsKept {
			vs = vs[:versionsKept]
		}
		r[col] = vs
	}
	return bytes
}

// compare says how a row that was read differs from the model.
func (w *writer) compare(table string, got engine.Row, want row) error {
	at := 0
	differ := func(format string, args ...any) error {
		return fmt.Errorf("difference in table %s, row %s: %s", table, got.Key, fmt.Sprintf(format, args...))
	}
	var value []byte
	for _, col := range slices.Sorted(maps.Keys(want)) {
		for _, v := range want[col] {
			if at == len(got.Cells) {
				return differ("%d cells, the model has %s@%d and more", at, col, v.ts)
			}
			c := got.Cells[at]
			if name := c.Family + ":" + c.Qualifier; name != col || c.Timestamp != v.ts {
				return differ("cell %d is %s@%d, the model has %s@%d", at, name, c.Timestamp, col, v.ts)
			}
			if value = w.appendValue(value[:0], v.ts, v.size); string(value) != string(c.Value) {
				return differ("value of %s@%d is %d bytes %.40q, the model has %d bytes %.40q", col, v.ts, len(c.Value), c.Value, v.size, value)
			}
			at++
		}
	}
	if at < len(got.Cells) {
		c := got.Cells[at]
		return differ("%d cells, the model has %d: %s:%s@%d is too much", len(got.Cells), at, c.Family, c.Qualifier, c.Timestamp)
	}
	w.l.n.cells.Add(int64(at))
	return nil
}

func (w *writer) readRow(table, key string) error {
	got, err := w.l.db.Table(table).ReadRow(ctx, key)
	if err != nil {
		return err
	}
	w.l.n.reads.Add(1)
	return w.compare(table, got, w.rows[table][key])
}

// scan reads all rows of the writer in a table, one way or the other.
func (w *writer) scan(table string, want model, reverse bool, opts ...engine.ReadOption) error {
	keys := slices.Collect(func(yield func(string) bool) {
		for k, r := range want {
			if len(r) > 0 && !yield(k) {
				return
			}
		}
	})
	slices.Sort(keys)
	if reverse {
		opts = append(opts, engine.ReverseScan())
		slices.Reverse(keys)
	}
	at := 0
	var differs error
	err := w.l.db.Table(table).ReadRows(ctx, engine.PrefixRange(prefix(w.id)), func(r engine.Row) bool {
		switch {
		case at == len(keys):
			differs = fmt.Errorf("difference in table %s: row %s is too much", table, r.Key)
		case r.Key != keys[at]:
			differs = fmt.Errorf("difference in table %s: row %s, the model has %s", table, r.Key, keys[at])
		default:
			differs = w.compare(table, r, want[r.Key])
		}
		at++
		return differs == nil
	}, opts...)
	switch {
	case err != nil:
		return err
	case differs == nil && at < len(keys):
		differs = fmt.Errorf("difference in table %s: %d rows, the model has %d", table, at, len(keys))
	}
	w.l.n.scans.Add(1)
	return differs
}

// snapshot takes one, or looks at the one there is and sometimes closes it.
func (w *writer) snapshot(table string) (err error) {
	reverse, drop := w.rng.IntN(2) == 0, w.rng.IntN(4) == 0 // drawn in any case: a reopening may have taken the snapshot away
	if w.snap == nil {
		if w.snap, err = w.l.db.Snapshot(); err != nil {
			return err
		}
		w.l.n.snapshots.Add(1)
		w.then = map[string]model{}
		for t, rows := range w.rows {
			w.then[t] = maps.Clone(rows)
		}
		return nil
	}
	if err := w.scan(table, w.then[table], reverse, engine.AtSnapshot(w.snap)); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if drop {
		return w.dropSnapshot()
	}
	return nil
}

func (w *writer) dropSnapshot() error {
	if w.snap == nil {
		return nil
	}
	err := w.snap.Close()
	w.snap, w.then = nil, nil
	return err
}
