package cell

// IterOptions narrow what an Iter of a source yields. The zero value yields everything.
type IterOptions struct {
	Columns  Range // cells and narrow deletes of these columns only; the zero Range is all columns
	KeysOnly bool  // leave Cell.Value nil
	NoFill   bool  // do not admit what is read to the cache: scans and compactions
}
