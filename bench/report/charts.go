package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/rowandb/rowan/bench/measure"
)

// Charts are drawn here, as SVG. Nothing but numbers and names of engines, which are known, goes into them.

// drawing is a chart in the making.
type drawing struct {
	strings.Builder
	w, h float64
}

func draw(w, h float64) *drawing {
	d := &drawing{w: w, h: h}
	fmt.Fprintf(d, `<svg width="%g" height="%g" viewBox="0 0 %g %g" role="img">`, w, h, w, h)
	return d
}

func (d *drawing) text(x, y float64, anchor, class, s string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, template.HTMLEscapeString(s))
}

func (d *drawing) axis(x1, y1, x2, y2 float64) {
	fmt.Fprintf(d, `<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x1, y1, x2, y2)
}

func (d *drawing) path(colour string, points []float64) {
	fmt.Fprintf(d, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, colour)
	for i := 0; i+1 < len(points); i += 2 {
		fmt.Fprintf(d, "%.1f,%.1f ", points[i], points[i+1])
	}
	d.WriteString(`"/>`)
}

func (d *drawing) done() template.HTML { return template.HTML(d.String() + "</svg>") }

// bars shows the rates of all engines.
func bars(r Row) template.HTML {
	high := 0.0
	for _, c := range r.Engines {
		high = max(high, c.Result.Rate)
	}
	d := draw(340, float64(len(r.Engines))*22+4)
	for i, c := range r.Engines {
		y := float64(i) * 22
		d.text(70, y+15, "end", "name", c.Engine)
		if c.None != "" || high == 0 {
			d.text(78, y+15, "start", "", "no figure")
			continue
		}
		w := 180 * c.Result.Rate / high
		fmt.Fprintf(d, `<rect x="76" y="%.1f" width="%.1f" height="16" rx="2" fill="%s"/>`, y+2, max(w, 1), colours[i%len(colours)])
		d.text(82+w, y+15, "start", "", Number(c.Result.Rate))
	}
	return d.done()
}

const left, bottom, chartW, chartH = 42, 18, 340, 170

// curves shows latencies by percentile, both on a logarithmic scale: each step to the right leaves a tenth of the operations.
func curves(r Row) template.HTML {
	low, high := math.Inf(1), 0.0
	for _, c := range r.Engines {
		for _, v := range c.Result.Curve {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high == 0 {
		return ""
	}
	l, h := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high*1.0001))
	nines := func(q float64) float64 { return -math.Log10(1 - q) }
	last := nines(measure.Quantiles[len(measure.Quantiles)-1])
	x := func(q float64) float64 { return left + nines(q)/last*(chartW-left-10) }
	y := func(v float64) float64 { return (chartH-bottom)*(1-(math.Log10(v)-l)/(h-l)) + 4 }
	d := draw(chartW, chartH+6)
	for e := l; e <= h; e++ {
		v := math.Pow(10, e)
		d.axis(left, y(v), chartW, y(v))
		d.text(left-4, y(v)+4, "end", "", fmt.Sprintf("%g", v))
	}
	for i, name := range []string{"0", "90", "99", "99.9", "99.99", "99.999"} {
		d.text(x(1-math.Pow(10, -float64(i))), chartH+2, "middle", "", name)
	}
	for i, c := range r.Engines {
		if c.None != "" {
			continue
		}
		var points []float64
		for k, v := range c.Result.Curve {
			if v > 0 {
				points = append(points, x(measure.Quantiles[k]), y(v))
			}
		}
		d.path(colours[i%len(colours)], points)
	}
	return d.done()
}

// timeLine shows operations a second over the time of the run; only for runs that were long enough to show something.
func timeLine(r Row) template.HTML {
	const least = 8 // points
	steps, high := 0, 0.0
	for _, c := range r.Engines {
		steps = max(steps, len(c.Result.Line))
		for _, n := range c.Result.Line {
			high = max(high, float64(n))
		}
	}
	if steps < least || high == 0 {
		return ""
	}
	perSecond := float64(time.Second / measure.Step)
	x := func(i int) float64 { return left + float64(i)/float64(steps-1)*(chartW-left-10) }
	y := func(n float64) float64 { return (chartH-bottom)*(1-n/high) + 4 }
	d := draw(chartW, chartH+6)
	for k := range 3 {
		n := high * float64(k) / 2
		d.axis(left, y(n), chartW, y(n))
		d.text(left-4, y(n)+4, "end", "", strings.ReplaceAll(Number(n*perSecond), " ", ""))
	}
	d.text(left, chartH+2, "start", "", "0 s")
	d.text(chartW-4, chartH+2, "end", "", fmt.Sprintf("%.1f s", float64(steps)/perSecond))
	for i, c := range r.Engines {
		if c.None != "" || len(c.Result.Line) < 2 {
			continue
		}
		var points []float64
		for k, n := range c.Result.Line[:len(c.Result.Line)-1] { // the last step is not whole
			points = append(points, x(k), y(float64(n)))
		}
		d.path(colours[i%len(colours)], points)
	}
	return d.done()
}
