package cell

import "testing"

// BenchmarkRecord builds and reads back the record of a batch of 100 cells.
func BenchmarkRecord(b *testing.B) {
	var rb RecordBuilder
	var rec []byte
	row, col, value := []byte("row-0123456789ab"), []byte("f\x00\x01qualifier"), make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		rb.Reset()
		for i := range 100 {
			row[15] = byte(i)
			rb.Append(&Entry{Op: OpCell, Kind: KindSet, Tree: 1, Row: row, Col: col, TS: int64(i), Value: value})
		}
		rec = rb.Record(Header{FirstSeq: 1})
		r, err := ReadRecord(rec)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for _, ok := r.Next(); ok; _, ok = r.Next() {
			n++
		}
		if n != 100 || r.Err() != nil {
			b.Fatal(n, r.Err())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/cell")
}
