package gc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowandb/rowan/internal/damage"
)

func TestStringAndBinaryReadBack(t *testing.T) {
	for _, r := range smallRules() {
		back, err := Parse(r.String())
		if err != nil || !back.Equal(r) {
			t.Fatalf("%v: parsed as %v, %v", r, back, err)
		}
		p := r.Append([]byte("x"))
		back, rest, err := Decode(append(p, "tail"...)[1:])
		if err != nil || !back.Equal(r) || string(rest) != "tail" {
			t.Fatalf("%v: decoded as %v, rest %q, %v", r, back, rest, err)
		}
		for n := range len(p) - 1 {
			if _, _, err := Decode(p[1 : 1+n]); !errors.Is(err, damage.Err) {
				t.Fatalf("%v cut to %d bytes: %v", r, n, err)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"versions(2)|age(30m)", "versions(2) | age(30m)"},
		{"versions(2) | age(30m) & versions(1)", "versions(2) | (age(30m) & versions(1))"},
		{" ( ( none ) ) ", "none"},
		{"age(7d)", "age(168h)"},
		{"age(1500ms)", "age(1.5s)"},
		{"a", "error: want none, versions(n), age(d)"},
		{"versions(2", "error: missing )"},
		{"versions(0)", "error: must be 1..2147483647"},
		{"versions(99999999999)", "error:"},
		{"age(-1h)", "error: must be at least 1ms"},
		{"age(999999d)", "error: bad age"},
		{"none none", `error: unexpected "none" at byte 5`},
		{"none|", "error: want none"},
		{"", "error: want none"},
		{strings.Repeat("(", 5000), "error: nested too deep"},
		{strings.Repeat("union(", 9) + strings.Repeat(")", 9), "error: nested more than 8 deep"},
		{strings.Repeat("none|", 200) + "none", "error:"},
	} {
		r, err := Parse(c.in)
		if want, isErr := strings.CutPrefix(c.want, "error:"); isErr {
			if !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), want) {
				t.Errorf("%.60q: %v, want error with %q", c.in, err, want)
			}
		} else if err != nil || r.String() != c.want {
			t.Errorf("%.60q: %v, %v, want %v", c.in, r, err, c.want)
		}
	}
}

func FuzzDecodeRule(f *testing.F) {
	for _, r := range smallRules()[:60] {
		f.Add(r.Append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		r, rest, err := Decode(p)
		if err != nil {
			if !errors.Is(err, damage.Err) {
				t.Fatal(err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatalf("decoded rule is not valid: %v", err)
		}
		back, rest2, err := Decode(r.Append(nil))
		if err != nil || len(rest2) != 0 || !back.Equal(r) || !bytes.HasSuffix(p, rest) {
			t.Fatalf("%v does not read back: %v %v", r, back, err)
		}
	})
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"versions(2)|age(30m)", "union()&(age(7d))", "none", "((("} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			return
		}
		if back, err := Parse(r.String()); err != nil || !back.Equal(r) {
			t.Fatalf("%q -> %v -> %v, %v", s, r, back, err)
		}
	})
}

// TestTimelines runs testdata/*: each case is "rule=... now=HH:MM:SS", one line per column of versions "@HH:MM:SS=value",
// newest first ("!" after the value marks a deleted version, which has no rank), "----", and what stays. A line of the
// output ends with the floor where there is one.
func TestTimelines(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.Split(string(data), "\n\n") {
			var lines []string
			for _, l := range strings.Split(strings.TrimSpace(c), "\n") {
				if !strings.HasPrefix(l, "#") && l != "" {
					lines = append(lines, l)
				}
			}
			if len(lines) == 0 {
				continue
			}
			cut := slices.Index(lines, "----")
			if cut < 0 {
				t.Fatalf("%s: case without ----: %s", name, c)
			}
			got := runTimeline(t, lines[0], lines[1:cut])
			if want := strings.Join(lines[cut+1:], "\n"); got != want {
				t.Errorf("%s: %s\n%s\ngot:\n%s\nwant:\n%s", name, lines[0], strings.Join(lines[1:cut], "\n"), got, want)
			}
		}
	}
}

func runTimeline(t *testing.T, head string, columns []string) string {
	t.Helper()
	ruleText, now, ok := strings.Cut(strings.TrimPrefix(head, "rule="), " now=")
	if !ok {
		t.Fatalf("bad head %q", head)
	}
	r, asOf := mustParse(t, ruleText), clock(t, now)
	var out []string
	for _, col := range columns {
		fields := strings.Fields(col)
		line := fields[0]
		var live []int64
		for _, v := range fields[1:] {
			at, value, _ := strings.Cut(strings.TrimPrefix(v, "@"), "=")
			if strings.HasSuffix(value, "!") {
				continue
			}
			ts := clock(t, at)
			if !r.Drops(len(live), ts, asOf) {
				line += " " + v
			}
			live = append(live, ts)
		}
		if floor, ok := r.Floor(live, asOf); ok {
			line += " floor=" + time.UnixMicro(floor).UTC().Format(layout(floor))
		} else {
			line += " no floor"
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func clock(t *testing.T, s string) int64 {
	t.Helper()
	for _, l := range []string{"15:04:05.000000", "15:04:05", "15:04"} {
		if at, err := time.Parse("2006-01-02 "+l, "1970-01-02 "+s); err == nil {
			return at.UnixMicro()
		}
	}
	t.Fatalf("bad time %q", s)
	return 0
}

func layout(us int64) string {
	switch {
	case us%time.Second.Microseconds() != 0:
		return "15:04:05.000000"
	case us%time.Minute.Microseconds() != 0:
		return "15:04:05"
	}
	return "15:04"
}
