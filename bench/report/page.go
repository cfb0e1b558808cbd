package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/rowandb/rowan/bench/measure"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": Number,
	"short":  func(v float64) string { return fmt.Sprintf("%.3g", v) },
	"mb":     func(n int64) string { return megabytes(n) },
	"amplification": func(r measure.Result) string {
		if a := Amplification(&r); !math.IsNaN(a) {
			return fmt.Sprintf("%.2f", a)
		}
		return ""
	},
}).Parse(pageText))

func megabytes(n int64) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprint(n >> 20)
}

// colours of the engines, in the order of the table.
var colours = []string{"#1570ef", "#f79009", "#d92d20", "#7a5af8", "#12b76a", "#667085", "#c11574"}

// Page writes one page that needs nothing else: no scripts, no network.
func Page(w io.Writer, title, warning string, engines []string, rows []Row, verdicts []Verdict) error {
	type engine struct{ Name, Version, Colour string }
	type section struct {
		Name, Unit, Best   string
		Ratio              float64
		Bars, Curves, Line template.HTML
		Cells              []Cell
	}
	type group struct {
		Name  string
		Works []section
	}
	page := struct {
		Title, Warning string
		Engines        []engine
		Groups         []group
		Verdicts       []Verdict
	}{Title: title, Warning: warning, Verdicts: verdicts}
	for i, name := range engines {
		e := engine{Name: name, Colour: colours[i%len(colours)]}
		for _, r := range rows {
			if c := r.Engines[i]; c.None == "" {
				e.Version = c.Result.Version
			}
		}
		page.Engines = append(page.Engines, e)
	}
	for _, r := range rows {
		if n := len(page.Groups); n == 0 || page.Groups[n-1].Name != r.Work.Group {
			page.Groups = append(page.Groups, group{Name: r.Work.Group})
		}
		g := &page.Groups[len(page.Groups)-1]
		g.Works = append(g.Works, section{r.Work.Name, r.Work.Unit, r.Best, r.Ratio, bars(r), curves(r), timeLine(r), r.Engines})
	}
	return pageTemplate.Execute(w, page)
}
