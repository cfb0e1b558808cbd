package block

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/rowandb/rowan/cell"
	"github.com/rowandb/rowan/internal/damage"
)

// Every part of a table file stands in an envelope:
//
//	<checksum 8B> <raw length 4B> <stored length 4B> <codec 1B> <part 1B> <zero 2B> <stored bytes>
//
// All numbers are little-endian. The checksum is xxhash64 over everything after it, seeded with the file's identity and the
// envelope's offset, so that a part of another file, or of another place of this one, does not pass.
const HeadLen = 20

// PartMax bounds the raw and stored size of a part: the largest value, alone in its chunk, and generous room for an index.
const PartMax = cell.ValueMax + 28<<20

// Part says what an envelope holds.
type Part uint8

const (
	PartKeys       Part = 1 // the keys of a cell block
	PartValues     Part = 2 // a chunk of the values of a cell block
	PartIndex      Part = 3 // index entries that point at blocks
	PartRoot       Part = 4 // index entries that point at PartIndex
	PartRowFilter  Part = 5 // filter of row keys
	PartCellFilter Part = 6 // filter of (row, column)
	PartProperties Part = 7
)

var partNames = [...]string{"part 0", "keys", "values", "index", "index root", "row filter", "column filter", "properties"}

func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return "unknown part"
}

// Head is an envelope's head.
type Head struct {
	Sum    uint64
	Raw    int // bytes after decoding
	Stored int // bytes in the file, without the head
	Codec  Codec
	Part   Part
}

// Seed is what the checksum of the envelope at off in the file with identity id starts from.
func Seed(id uint64, off int64) uint64 {
	// The odd factor spreads neighbouring offsets over all bits; a sum alone would let (id+1, off) pass for (id, off+1).
	return id ^ uint64(off)*0x9e3779b97f4a7c15
}

// Checksum hashes the concatenation of head and body under seed.
func Checksum(seed uint64, head, body []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	d.Write(head)
	d.Write(body)
	return d.Sum64()
}

// AppendHead appends the head of an envelope around stored.
func AppendHead(dst []byte, seed uint64, part Part, codec Codec, raw int, stored []byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, HeadLen)...)
	h := dst[at:]
	binary.LittleEndian.PutUint32(h[8:], uint32(raw))
	binary.LittleEndian.PutUint32(h[12:], uint32(len(stored)))
	h[16], h[17] = byte(codec), byte(part)
	binary.LittleEndian.PutUint64(h, Checksum(seed, h[8:], stored))
	return dst
}

// Seal appends the envelope of raw to dst, compressed with codec if that saves an eighth. It copies the stored bytes.
func Seal(dst []byte, seed uint64, part Part, codec Codec, raw []byte) []byte {
	stored, used, _ := Compress(codec, nil, raw)
	dst = AppendHead(dst, seed, part, used, len(raw), stored)
	return append(dst, stored...)
}

// Open checks the envelope that fills p and returns its head and stored bytes, which alias p. Reading p hashes it whole.
// Offsets in errors count from the envelope's start.
func Open(p []byte, seed uint64, part Part) (Head, []byte, error) {
	h, err := ReadHead(p, part)
	if err != nil {
		return h, nil, err
	}
	if h.Stored != len(p)-HeadLen {
		return h, nil, damage.New(part.String(), 12, "%d bytes stored, the place has %d", h.Stored, len(p)-HeadLen)
	}
	body := p[HeadLen:]
	if sum := Checksum(seed, p[8:HeadLen], body); sum != h.Sum {
		return h, nil, damage.New(part.String(), 0, "checksum %016x, computed %016x over %d bytes", h.Sum, sum, h.Stored)
	}
	return h, body, nil
}

// ReadHead reads and checks the head at the start of p, without its checksum.
func ReadHead(p []byte, part Part) (Head, error) {
	if len(p) < HeadLen {
		return Head{}, damage.New(part.String(), 0, "%d bytes are too short for a head", len(p))
	}
	raw, stored := binary.LittleEndian.Uint32(p[8:]), binary.LittleEndian.Uint32(p[12:])
	h := Head{Sum: binary.LittleEndian.Uint64(p), Codec: Codec(p[16]), Part: Part(p[17])}
	switch {
	case h.Part != part:
		return h, damage.New(part.String(), 17, "is a %v (%d)", h.Part, p[17])
	case !h.Codec.Valid():
		return h, damage.New(part.String(), 16, "unknown codec %d", p[16])
	case p[18] != 0 || p[19] != 0:
		return h, damage.New(part.String(), 18, "reserved bytes are not zero")
	case raw > PartMax || stored > raw || h.Codec == CodecNone && stored != raw:
		return h, damage.New(part.String(), 8, "raw size %d and stored size %d do not fit", raw, stored)
	}
	h.Raw, h.Stored = int(raw), int(stored)
	return h, nil
}

// OpenDecoded checks the envelope that fills p and returns the raw bytes: an alias of p if they are stored raw, else decoded
// into a new slice. p must not be mapped memory.
func OpenDecoded(p []byte, seed uint64, part Part) ([]byte, error) {
	h, stored, err := Open(p, seed, part)
	if err != nil || h.Codec == CodecNone {
		return stored, err
	}
	raw := make([]byte, h.Raw)
	if err := Decode(h.Codec, raw, stored); err != nil {
		return nil, err
	}
	return raw, nil
}
