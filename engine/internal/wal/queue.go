package wal

import (
	"encoding/binary"
	"time"

	"github.com/rowandb/rowan/io/record"
)

// Records wait in chunks, so that a long queue is never copied to grow and its memory serves again.
const (
	chunkSize  = 64 << 10
	chunksKept = 256 // unused ones a log holds on to: memory that is not there yet costs far more than the copy into it
	placedHead = 12  // size 4 B, sequence 8 B, before the bytes of each record
)

// batch is a run of placed records.
type batch struct {
	chunks [][]byte // each holds whole records
	n      int      // records
	bytes  int      // of records
	first  uint64   // sequence of the first record
	state  record.State
	since  time.Time // when the first was placed
}

// chunkPool keeps unused chunks; protected by Log.mu.
type chunkPool struct{ free [][]byte }

func (p *chunkPool) get(n int) []byte {
	if k := len(p.free); k > 0 && n <= chunkSize {
		c := p.free[k-1]
		p.free = p.free[:k-1]
		return c
	}
	return make([]byte, 0, max(n, chunkSize))
}

// add copies a record to the end of the queue.
func (q *batch) add(p *chunkPool, rec []byte, seq uint64) {
	need := placedHead + len(rec)
	k := len(q.chunks) - 1
	if k < 0 || cap(q.chunks[k])-len(q.chunks[k]) < need {
		q.chunks = append(q.chunks, p.get(need))
		k++
	}
	c := q.chunks[k]
	c = binary.LittleEndian.AppendUint32(c, uint32(len(rec)))
	c = binary.LittleEndian.AppendUint64(c, seq)
	q.chunks[k] = append(c, rec...)
	if q.n == 0 {
		q.first = seq
	}
	q.n++
	q.bytes += len(rec)
}

// each calls f for every record in order.
func (q *batch) each(f func(seq uint64, rec []byte) error) error {
	for _, c := range q.chunks {
		for len(c) > 0 {
			size := int(binary.LittleEndian.Uint32(c))
			if err := f(binary.LittleEndian.Uint64(c[4:]), c[placedHead:placedHead+size]); err != nil {
				return err
			}
			c = c[placedHead+size:]
		}
	}
	return nil
}

// clear empties the batch and gives its chunks back.
func (q *batch) clear(p *chunkPool) {
	for i, c := range q.chunks {
		if cap(c) == chunkSize && len(p.free) < chunksKept {
			p.free = append(p.free, c[:0])
		}
		q.chunks[i] = nil
	}
	*q = batch{chunks: q.chunks[:0]}
}
