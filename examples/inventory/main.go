// Command inventory keeps the items of a shop the way an item store with partition and sort keys would have them.
//
// An item's composite key is its row: "hats#fedoras#brandA". Rows are sorted, so that one prefix is all hats, a longer one all
// fedoras, and a range any part of that, read in either direction. An item's attributes are columns of its row; putting an item
// replaces all of them, and a condition says whether it may.
//
// Items expire one by one. Their cells carry the moment of expiry as their timestamp, in a family that keeps nothing older than
// a millisecond: when the moment has passed, the item is gone from every read, and its space comes back with the next
// compactions. Items that never expire carry the largest timestamp.
//
// The example prints what it does, checks every answer, and exits with 1 at the first difference.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

// item is a set of attributes; it expires at a time, or never if that is zero.
type item struct {
	attrs   map[string]string
	expires time.Time
}

// shop is the table with what it needs.
type shop struct {
	db    *engine.DB
	items *engine.Table
	now   time.Time // the store's clock, so that the example need not wait
}

const family = "item"

// never is the expiry of items that have none.
const never = engine.Timestamp(math.MaxInt64)

func run() (err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "inventory-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &shop{now: time.Now()}
	if s.db, err = engine.Open(dir, engine.Options{Clock: func() time.Time { return s.now }}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.db.Close()) }()
	s.items, err = s.db.CreateTable(ctx, "items", engine.TableSpec{Families: map[string]engine.FamilySpec{
		family: {GC: gc.MaxAgePolicy(time.Millisecond)},
	}})
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{s.fill, s.query, s.conditions, s.expiry} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	fmt.Println("all answers are right")
	return nil
}

func (s *shop) fill(ctx context.Context) error {
	hour := s.now.Add(time.Hour)
	for key, it := range map[string]item{
		"hats#bowlers#brandA":      {attrs: map[string]string{"price": "60", "stock": "4"}},
		"hats#fedoras#brandA":      {attrs: map[string]string{"price": "80", "stock": "7"}},
		"hats#fedoras#brandB":      {attrs: map[string]string{"price": "95", "stock": "2"}},
		"hats#fedoras#brandZ":      {attrs: map[string]string{"price": "12", "stock": "90"}, expires: hour},
		"hats#fedoras-felt#brandA": {attrs: map[string]string{"price": "110", "stock": "1"}},
		"hats#trilbies#brandA":     {attrs: map[string]string{"price": "50", "stock": "3"}},
		"shoes#boots#brandA":       {attrs: map[string]string{"price": "150", "stock": "5"}},
	} {
		if err := s.put(ctx, key, it); err != nil {
			return err
		}
	}
	fmt.Println("put 7 items; hats#fedoras#brandZ expires in an hour")
	return nil
}

// put replaces an item whole, whatever it was and whenever that would have expired.
func (s *shop) put(ctx context.Context, key string, it item, cond ...engine.Filter) error {
	at := never
	if !it.expires.IsZero() {
		at = engine.Time(it.expires)
	}
	m := engine.NewMutation()
	m.DeleteRow()
	for _, name := range slices.Sorted(maps.Keys(it.attrs)) {
		m.Set(family, name, at, []byte(it.attrs[name]))
	}
	if len(cond) == 0 {
		return s.items.Apply(ctx, key, m)
	}
	b := engine.NewBatch()
	b.Require(s.items, key, cond[0], true)
	b.Add(s.items, key, m)
	return s.db.Apply(ctx, b)
}

// keys returns the keys of the rows that filter passes, in the order of the read. No value is read for that.
func (s *shop) keys(ctx context.Context, rows engine.RowSet, filter engine.Filter, opts ...engine.ReadOption) (keys []string, err error) {
	opts = append(opts, engine.RowFilter(engine.ChainFilters(filter, engine.CellsPerRowLimitFilter(1), engine.StripValueFilter())))
	for row, err := range s.items.Rows(ctx, rows, opts...) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, row.Key)
	}
	return keys, nil
}

func (s *shop) query(ctx context.Context) error {
	all := engine.PassAllFilter()
	for _, q := range []struct {
		what   string
		rows   engine.RowSet
		filter engine.Filter
		opts   []engine.ReadOption
		want   []string
	}{
		{"all fedoras, and nothing that only begins like them", engine.PrefixRange("hats#fedoras#"), all, nil,
			[]string{"hats#fedoras#brandA", "hats#fedoras#brandB", "hats#fedoras#brandZ"}},
		{"the last two fedoras first", engine.PrefixRange("hats#fedoras#"), all, []engine.ReadOption{engine.ReverseScan(), engine.LimitRows(2)},
			[]string{"hats#fedoras#brandZ", "hats#fedoras#brandB"}},
		{"hats from bowlers up to and with fedoras of brandA", engine.NewClosedRange("hats#bowlers", "hats#fedoras#brandA"), all, nil,
			[]string{"hats#bowlers#brandA", "hats#fedoras#brandA"}},
		{"after fedoras of brandA, to the end of the hats", engine.NewOpenRange("hats#fedoras#brandA", "hats$"), all, nil,
			[]string{"hats#fedoras#brandB", "hats#fedoras#brandZ", "hats#fedoras-felt#brandA", "hats#trilbies#brandA"}},
		{"brandA of every kind of hat", engine.AllRows(), engine.RowKeyFilter("hats#.*#brandA"), nil,
			[]string{"hats#bowlers#brandA", "hats#fedoras#brandA", "hats#fedoras-felt#brandA", "hats#trilbies#brandA"}},
	} {
		got, err := s.keys(ctx, q.rows, q.filter, q.opts...)
		if err != nil {
			return err
		}
		if !slices.Equal(got, q.want) {
			return fmt.Errorf("%s: got %q, want %q", q.what, got, q.want)
		}
		fmt.Printf("%s: %d items\n", q.what, len(got))
	}
	return nil
}

// conditions puts an item only if it is as expected.
func (s *shop) conditions(ctx context.Context) error {
	const key = "hats#fedoras#brandB"
	stock := func(n string) engine.Filter {
		return engine.ChainFilters(engine.ColumnExact(family, "stock"), engine.ValueFilter(n))
	}
	sold := item{attrs: map[string]string{"price": "95", "stock": "1"}}
	if err := s.put(ctx, key, sold, stock("2")); err != nil {
		return err
	}
	if err := s.put(ctx, key, sold, stock("2")); !errors.Is(err, engine.ErrPrecondition) {
		return fmt.Errorf("the last hat but one is sold twice: %v", err)
	}
	row, err := s.items.ReadRow(ctx, key)
	if err != nil {
		return err
	}
	if left, _ := row.Latest(family, "stock"); string(left) != "1" {
		return fmt.Errorf("stock of %s is %q", key, left)
	}
	fmt.Println("sold one", key, "and refused the buyer who thought there were two")
	return nil
}

func (s *shop) expiry(ctx context.Context) error {
	const key = "hats#fedoras#brandZ"
	see := func(want bool, when string) error {
		row, err := s.items.ReadRow(ctx, key)
		if err != nil {
			return err
		}
		if there := len(row.Cells) > 0; there != want {
			return fmt.Errorf("%s: %s is there: %v, want %v", when, key, there, want)
		}
		fmt.Printf("%s: %s is there: %v\n", when, key, want)
		return nil
	}
	s.now = s.now.Add(50 * time.Minute)
	if err := see(true, "after 50 minutes"); err != nil {
		return err
	}
	// Put again with a later expiry: the old one counts no more.
	if err := s.put(ctx, key, item{attrs: map[string]string{"price": "9"}, expires: s.now.Add(30 * time.Minute)}); err != nil {
		return err
	}
	s.now = s.now.Add(20 * time.Minute)
	if err := see(true, "20 minutes after it was put again for 30"); err != nil {
		return err
	}
	s.now = s.now.Add(11 * time.Minute)
	if err := see(false, "11 minutes later"); err != nil {
		return err
	}
	// An expired item does not exist: a new one may take its place.
	fresh := engine.NewMutation()
	fresh.Set(family, "price", never, []byte("14"))
	var taken bool
	if err := s.items.Apply(ctx, key, engine.NewCondMutation(nil, nil, fresh), engine.GetCondMutationResult(&taken)); err != nil {
		return err
	}
	if taken {
		return fmt.Errorf("%s cannot be created: it has expired and is still in the way", key)
	}
	if err := see(true, "created anew"); err != nil {
		return err
	}
	if err := s.db.Compact(ctx); err != nil {
		return err
	}
	if n := s.db.Metrics().CollectedCells; n == 0 {
		return errors.New("no expired cell was collected")
	}
	fmt.Println("compaction gave the space of expired cells back")
	return nil
}
