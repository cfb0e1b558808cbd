package gc

import (
	"encoding/binary"

	"github.com/rowandb/rowan/internal/damage"
)

// The manifest keeps a rule as
//
//	rule: 0                              none
//	      1 <uvarint n>                  versions
//	      2 <uvarint microseconds>       age
//	      3 <uvarint k> rule*k           union
//	      4 <uvarint k> rule*k           intersection
//
// within the limits of Validate.

// Append appends the binary form of r, which must be valid, to dst.
func (r Rule) Append(dst []byte) []byte {
	dst = append(dst, byte(r.op))
	switch r.op {
	case opVersions, opAge:
		dst = binary.AppendUvarint(dst, uint64(r.n))
	case opUnion, opIntersec:
		dst = binary.AppendUvarint(dst, uint64(len(r.kids)))
		for i := range r.kids {
			dst = r.kids[i].Append(dst)
		}
	}
	return dst
}

// Decode reads a rule from the start of p and returns what follows it. Errors match damage.Err.
func Decode(p []byte) (r Rule, rest []byte, err error) {
	d := decoder{p: p}
	r = d.rule(1)
	if d.err != nil {
		return Rule{}, nil, d.err
	}
	return r, p[d.off:], nil
}

type decoder struct {
	p     []byte
	off   int
	nodes int
	err   error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = damage.New("collection rule", int64(d.off), format, args...)
	}
}

func (d *decoder) rule(depth int) (r Rule) {
	d.nodes++
	switch {
	case d.off >= len(d.p):
		d.fail("cut short")
	case depth > DepthMax:
		d.fail("nested more than %d deep", DepthMax)
	case d.nodes > NodesMax:
		d.fail("more than %d parts", NodesMax)
	}
	if d.err != nil {
		return r
	}
	r.op = op(d.p[d.off])
	d.off++
	switch r.op {
	case opNone:
	case opVersions:
		r.n = d.number("number of versions", 1, VersionsMax)
	case opAge:
		r.n = d.number("age", AgeMin.Microseconds(), ageMax)
	case opUnion, opIntersec:
		k := d.number("number of parts", 0, NodesMax)
		for i := int64(0); i < k && d.err == nil; i++ {
			r.kids = append(r.kids, d.rule(depth+1))
		}
	default:
		d.off--
		d.fail("unknown kind %d", r.op)
	}
	return r
}

func (d *decoder) number(what string, lo, hi int64) int64 {
	v, n := binary.Uvarint(d.p[d.off:])
	if n <= 0 || v < uint64(lo) || v > uint64(hi) {
		d.fail("%s is not in %d..%d", what, lo, hi)
		return 0
	}
	d.off += n
	return int64(v)
}
