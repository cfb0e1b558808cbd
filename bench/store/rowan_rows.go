package store

import (
	"time"

	"github.com/rowandb/rowan/engine"
	"github.com/rowandb/rowan/gc"
)

// rowanRows is a table with the families of the shape; collection is a rule of them.
type rowanRows struct{ *rowan }

func openRowanRows(dir string, o Options, collect bool) (Rows, error) {
	var rule gc.Rule
	if collect { // collected is what either part collects
		rule = gc.UnionPolicy(gc.MaxVersionsPolicy(KeepVersions), gc.MaxAgePolicy(KeepMicros*time.Microsecond))
	}
	families := map[string]engine.FamilySpec{}
	for _, f := range Families {
		families[f] = engine.FamilySpec{GC: rule}
	}
	r, err := openRowanTable(dir, o, engine.TableSpec{Families: families})
	if err != nil {
		return nil, err
	}
	return &rowanRows{r}, nil
}

func (r *rowanRows) Collect() error { return r.Compact() }

func (r *rowanRows) Session() (RowSession, error) {
	s := &rowanRowSession{rowanSession: rowanSession{r: r.rowan, batch: engine.NewBatch()}, newest: map[string][]engine.ReadOption{}}
	for _, f := range Families {
		for _, q := range Qualifiers {
			s.newest[f+q] = []engine.ReadOption{engine.RowFilter(engine.ChainFilters(engine.ColumnExact(f, q), engine.CellsPerRowLimitFilter(1)))}
		}
	}
	return s, nil
}

type rowanRowSession struct {
	rowanSession
	newest map[string][]engine.ReadOption // by family and qualifier
	name   []byte
}

func (s *rowanRowSession) Write(cells []Cell) error {
	s.batch.Reset()
	s.keys = s.keys[:0]
	for i := range cells {
		s.keys = append(s.keys, cells[i].Row...)
	}
	all, used := string(s.keys), 0
	for i := 0; i < len(cells); {
		row := all[i*RowBytes : (i+1)*RowBytes]
		m := s.mutation(used)
		used++
		for ; i < len(cells) && string(cells[i].Row) == row; i++ {
			c := &cells[i]
			m.Set(c.Family, c.Qualifier, engine.Timestamp(c.Micros), c.Value)
		}
		s.batch.Add(s.r.t, row, m)
	}
	return s.r.db.Apply(background, s.batch, engine.NoSync)
}

func (s *rowanRowSession) ReadRow(row []byte, fn func(Cell)) error {
	if err := s.r.t.ReadRowInto(background, &s.row, lent(row)); err != nil {
		return err
	}
	for i := range s.row.Cells {
		c := &s.row.Cells[i]
		fn(Cell{Row: row, Family: c.Family, Qualifier: c.Qualifier, Micros: int64(c.Timestamp), Value: c.Value})
	}
	return nil
}

// borrowed lends a cell on, for as long as it is lent.
func borrowed(c *engine.BorrowedCell) Cell {
	return Cell{Row: c.Row, Family: lent(c.Family), Qualifier: lent(c.Qualifier), Micros: int64(c.Timestamp), Value: c.Value}
}

func (s *rowanRowSession) Newest(row []byte, family, qualifier string, fn func([]byte)) (bool, error) {
	s.name = append(append(s.name[:0], family...), qualifier...)
	if err := s.r.t.ReadRowInto(background, &s.row, lent(row), s.newest[string(s.name)]...); err != nil || len(s.row.Cells) == 0 {
		return false, err
	}
	fn(s.row.Cells[0].Value)
	return true, nil
}

func (s *rowanRowSession) ScanRows(fn func(Cell)) error {
	return s.r.t.ReadCellsBorrowed(background, engine.AllRows(), func(c *engine.BorrowedCell) bool {
		fn(borrowed(c))
		return true
	})
}
