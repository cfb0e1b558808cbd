package filter

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

func chars(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// reference compiles a pattern the plain way, without looking for literals. Patterns with \C or \Q are beyond it.
func reference(p string) (*regexp.Regexp, bool) {
	if strings.Contains(p, `\C`) || strings.Contains(p, `\Q`) {
		return nil, false
	}
	if _, err := regexp.Compile(chars(p)); err != nil {
		return nil, false
	}
	re, err := regexp.Compile(`\A(?:` + chars(p) + `)\z`)
	return re, err == nil
}

func checkPattern(t *testing.T, p, in string) {
	t.Helper()
	x, err := CompilePattern(p)
	re, known := reference(p)
	if err != nil {
		if known && len(p) < 1000 && !strings.Contains(err.Error(), "steps") {
			t.Fatalf("%q: %v", p, err)
		}
		return
	}
	var s scratch
	got := x.match([]byte(in), &s)
	if got && !x.In.Contains([]byte(in)) {
		t.Fatalf("%q matches %q, which is not in %q", p, in, x.In)
	}
	if known && got != re.MatchString(chars(in)) {
		t.Fatalf("%q on %q: %v (form %d, literals %q)", p, in, got, x.form, x.lits)
	}
}

// Patterns match as the library's expressions over the characters of the same numbers do, in whatever form they are kept.
func TestPatternsMatchLikeExpressions(t *testing.T) {
	atoms := []string{"a", "b", "ab", ".", ".*", "[ab]", "[^a]", "a|b", "(a|b)*", "(ab)?", "a+", "a{2}", "a{1,3}", "", `\x00`, "\xff", "[\x80-\xff]", `\w`, `\d+`,
		"^", "$", `\b`, "(?i)A", "(?s).", "\n", `\n`, "(a|ab)(c|bcd)", "[[:alpha:]]", "[]a]", "[^]]", `\.`, "(?:a|)", `(?i:é)`}
	inputs := []string{"", "a", "b", "ab", "aa", "aaa", "abc", "abcd", "A", "\xff", "\x80", "\x00", "a\n", "\n", "a\xff", "]", "aab", "é", "É", "1", "a.b"}
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		p := ""
		for range 1 + r.IntN(4) {
			if p += atoms[r.IntN(len(atoms))]; r.IntN(6) == 0 {
				p = "(" + p + ")"
			}
		}
		for range 8 {
			in := inputs[r.IntN(len(inputs))] + inputs[r.IntN(len(inputs))]
			checkPattern(t, p, in)
		}
	}
}

func TestPatternForms(t *testing.T) {
	for _, c := range []struct {
		p       string
		form    formKind
		ranges  int
		literal bool
		yes, no []string
	}{
		{"abc", formOneOf, 1, true, []string{"abc"}, []string{"ab", "abcd", ""}},
		{"abc|abd|x", formOneOf, 3, false, []string{"abc", "abd", "x"}, []string{"ab", "abe"}},
		{"abc.*", formPrefixNL, 1, false, []string{"abc", "abcd"}, []string{"ab", "abc\n"}},
		{`abc\C*`, formPrefix, 1, false, []string{"abc", "abc\n\xff"}, []string{"ab"}},
		{`(abc|abx)(.*)`, formPrefixNL, 2, false, []string{"abc", "abxd"}, []string{"ab"}},
		{`a[0-9]{2}`, formRegexp, 1, false, []string{"a00", "a99"}, []string{"a0", "a000", "b00"}},
		{".*abc", formRegexp, 1, false, []string{"abc", "xabc"}, []string{"abcx"}},
		{"abc+", formRegexp, 1, false, []string{"abc", "abccc"}, []string{"ab"}},
		{`\Qa.c\E`, formOneOf, 1, true, []string{"a.c"}, []string{"abc"}},
		{`\Qa.c`, formOneOf, 1, true, []string{"a.c"}, []string{"abc"}},
		{`\Q\C`, formOneOf, 1, true, []string{`\C`}, []string{"a"}},
		{"\xc2\xa7", formOneOf, 1, true, []string{"§"}, []string{"\xc2"}},
		{`a\xC2.+`, formRegexp, 1, false, []string{"a\xc2\xa7"}, []string{"a\xc2", "a\xc3\xa7"}},
		{`\C{2}`, formRegexp, 1, false, []string{"§", "\n\n"}, []string{"a", "abc"}},
		{"", formOneOf, 1, false, []string{""}, []string{"a"}},
		{"|a", formOneOf, 2, false, []string{"", "a"}, []string{"b"}},
		{"[^\\x00-\\xff]", formOneOf, 0, false, nil, []string{"", "a"}},
	} {
		x, err := CompilePattern(c.p)
		if err != nil {
			t.Errorf("%q: %v", c.p, err)
			continue
		}
		if x.form != c.form || len(x.In) != c.ranges || x.Literal != c.literal {
			t.Errorf("%q: form %d, %d ranges %q, literal %v", c.p, x.form, len(x.In), x.In, x.Literal)
		}
		var s scratch
		for _, in := range c.yes {
			if !x.match([]byte(in), &s) || !x.In.Contains([]byte(in)) {
				t.Errorf("%q does not match %q", c.p, in)
			}
		}
		for _, in := range c.no {
			if x.match([]byte(in), &s) {
				t.Errorf("%q matches %q", c.p, in)
			}
		}
	}
	long := strings.Repeat("ab\xff", longInput)
	x, err := CompilePattern("(ab\xff)*")
	if err != nil {
		t.Fatal(err)
	}
	var s scratch
	if !x.match([]byte(long), &s) || x.match([]byte(long+"a"), &s) || len(s.utf8) > 2*longInput {
		t.Errorf("a long input is not matched piece by piece")
	}
}

// Matching allocates nothing, whatever the bytes.
func TestPatternAllocatesNothing(t *testing.T) {
	for _, p := range []string{"abc", "abc|x", "a.*", `a[bc]+d*`, `(\w+)-(\d+)`, "a\xff+"} {
		x, err := CompilePattern(p)
		if err != nil {
			t.Fatal(err)
		}
		var s scratch
		in := [][]byte{[]byte("abcd"), []byte("abc-12"), []byte("a\xff\xff"), nil}
		if n := testing.AllocsPerRun(100, func() {
			for _, b := range in {
				x.match(b, &s)
			}
		}); n != 0 && !raceEnabled { // under the race detector pools forget
			t.Errorf("%q: %v allocations", p, n)
		}
	}
}

func FuzzPattern(f *testing.F) {
	for _, p := range []string{"a.*", `\C+`, "(a|b)c?", `\Qx`, "[^]a]", "\xff", "(?i)k", "a{2,}", "x|", "[[:digit:]]+"} {
		f.Add(p, "ab")
	}
	f.Fuzz(func(t *testing.T, p, in string) {
		if len(p) < 200 && len(in) < 200 {
			checkPattern(t, p, in)
		}
	})
}

func TestRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	word := func() []byte { return []byte{"abc"[r.IntN(3)], "abc"[r.IntN(3)]}[:1+r.IntN(2)] }
	random := func() (list Ranges) {
		for range r.IntN(4) {
			x := Ranges{{From: word()}}[0]
			if r.IntN(5) > 0 {
				x.To = word()
			}
			list = append(list, x)
		}
		return list
	}
	in := func(list Ranges, b []byte) bool {
		for _, x := range list {
			if x.Contains(b) {
				return true
			}
		}
		return false
	}
	for range 2000 {
		a, b := random(), random()
		ua, ub := union(a), union(b)
		both := ua.Intersect(ub)
		for range 10 {
			w := word()
			if ua.Contains(w) != in(a, w) || both.Contains(w) != (in(a, w) && in(b, w)) {
				t.Fatalf("%q in %q and %q: %q, %q", w, a, b, ua, both)
			}
		}
		for i := 1; i < len(ua); i++ {
			if string(ua[i-1].To) >= string(ua[i].From) {
				t.Fatalf("%q is not disjoint", ua)
			}
		}
		if len(ua) > 0 && ua.covers(ua.Hull()) != (len(ua) == 1) {
			t.Fatalf("%q covers its hull: %v", ua, ua.covers(ua.Hull()))
		}
	}
}
