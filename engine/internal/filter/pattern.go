package filter

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// Limits of patterns: they bound the memory and the time that a pattern can take, which is linear in both.
const (
	PatternBytesMax = 64 << 10
	PatternStepsMax = 10_000 // of the compiled program, repetitions counted as often as they say
)

// Pattern is a compiled regular expression over bytes that must match all of its input. The syntax is that of RE2: each byte
// is a character, \C is any byte, a dot any but newline, and bytes from 0x80 on stand for themselves.
//
// The standard library's expressions work on UTF-8, so pattern and input are turned into the characters U+0000 to U+00FF.
type Pattern struct {
	form formKind
	lits [][]byte // sorted
	re   *regexp.Regexp
	// In is a set that holds all that matches, as far as literals at its start tell.
	In Ranges
	// Literal reports that the pattern is one literal string.
	Literal bool
}

// formKind says how a pattern is matched: most that are met in practice need no automaton.
type formKind uint8

const (
	formRegexp   formKind = iota
	formOneOf             // one of lits
	formPrefix            // one of lits, then anything
	formPrefixNL          // one of lits, then anything without newline
)

// scratch is memory of a matcher.
type scratch struct {
	utf8 []byte
	rd   latin1
}

// CompilePattern compiles p.
func CompilePattern(p string) (*Pattern, error) {
	if len(p) > PatternBytesMax {
		return nil, fmt.Errorf("pattern of %d bytes, the most is %d", len(p), PatternBytesMax)
	}
	text := translate(p)
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("pattern %.80q: %w", p, err)
	}
	if weigh(tree) > PatternStepsMax {
		return nil, fmt.Errorf("pattern %.80q needs more than %d steps", p, PatternStepsMax)
	}
	x := &Pattern{Literal: tree.Op == syntax.OpLiteral && tree.Flags&syntax.FoldCase == 0}
	x.recognize(tree)
	if x.form == formRegexp {
		if x.re, err = regexp.Compile(`\A(?:` + text + `)\z`); err != nil {
			return nil, fmt.Errorf("pattern %.80q: %w", p, err)
		}
	}
	return x, nil
}

// translate writes a pattern over bytes as one over the characters of the same numbers.
func translate(p string) string {
	var b strings.Builder
	quoted, class := false, false
	for i := 0; i < len(p); i++ {
		c := p[i]
		esc := c == '\\' && i+1 < len(p)
		switch {
		case quoted:
			if esc && p[i+1] == 'E' {
				quoted = false
				b.WriteString(`\E`)
				i++
				continue
			}
		case esc && p[i+1] == 'C' && !class:
			b.WriteString(`(?s:.)`)
			i++
			continue
		case esc:
			quoted = p[i+1] == 'Q' && !class
			b.WriteByte('\\')
			i++
			c = p[i]
		case class && c == '[' && i+1 < len(p) && p[i+1] == ':':
			if n := strings.Index(p[i:], ":]"); n > 0 {
				b.WriteString(p[i : i+n+2])
				i += n + 1
				continue
			}
		case class && c == ']':
			class = false
		case !class && c == '[':
			class = true
			b.WriteByte('[')
			if i+1 < len(p) && p[i+1] == '^' {
				b.WriteByte('^')
				i++
			}
			if i+1 < len(p) && p[i+1] == ']' { // stands for itself here
				b.WriteByte(']')
				i++
			}
			continue
		}
		b.WriteRune(rune(c))
	}
	if quoted {
		b.WriteString(`\E`)
	}
	return b.String()
}

// weigh is about how many steps a compiled expression has; it stops counting beyond the limit.
func weigh(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, k := range re.Sub {
		if n += weigh(k); n > PatternStepsMax {
			return n
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// Match reports whether all of b matches.
func (p *Pattern) match(b []byte, s *scratch) bool {
	switch p.form {
	case formOneOf:
		if len(p.lits) == 1 {
			return bytes.Equal(p.lits[0], b)
		}
		lo, hi := 0, len(p.lits)
		for lo < hi {
			m := (lo + hi) / 2
			switch c := bytes.Compare(p.lits[m], b); {
			case c == 0:
				return true
			case c < 0:
				lo = m + 1
			default:
				hi = m
			}
		}
		return false
	case formPrefix, formPrefixNL:
		for _, l := range p.lits {
			if bytes.HasPrefix(b, l) && (p.form == formPrefix || bytes.IndexByte(b[len(l):], '\n') < 0) {
				return true
			}
		}
		return false
	}
	if ascii(b) {
		return p.re.Match(b)
	}
	if len(b) > longInput {
		s.rd = latin1{b: b}
		ok := p.re.MatchReader(&s.rd)
		s.rd.b = nil
		return ok
	}
	s.utf8 = s.utf8[:0]
	for _, c := range b {
		s.utf8 = utf8.AppendRune(s.utf8, rune(c))
	}
	return p.re.Match(s.utf8)
}

// longInput is the length from which on input is not copied to be matched.
const longInput = 64 << 10

func ascii(b []byte) bool {
	for len(b) >= 8 {
		if (b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7])&0x80 != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c&0x80 != 0 {
			return false
		}
	}
	return true
}

// latin1 reads bytes as characters.
type latin1 struct {
	b []byte
	i int
}

func (r *latin1) ReadRune() (rune, int, error) {
	if r.i == len(r.b) {
		return 0, 0, io.EOF
	}
	r.i++
	return rune(r.b[r.i-1]), 1, nil
}
