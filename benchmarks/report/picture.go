package report

import (
	"bytes"
	"cmp"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// picture is a plot with its legend beside it, where it covers nothing.
//
// gonum/plot draws it: a library of Go alone that writes SVG itself, so that the
// command needs no browser, cgo or other program.
type picture struct {
	plot          *plot.Plot
	legend        *plot.Legend
	entries       int
	width, height vg.Length
	y             func(float64) float64 // the vertical scale
}

const legendWidth = 150

func newPicture(width, height vg.Length) picture {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.Padding = 3
	legend.ThumbnailWidth = 18
	linear := func(v float64) float64 { return v }
	return picture{plot: plot.New(), legend: &legend, width: width, height: height, y: linear}
}

// tones can be told apart by people who see colours differently; the first is
// pubsub's.
var tones = []color.Color{
	color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0x7f, 0x7f, 0x7f, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x00, 0x00, 0xff}, color.RGBA{0x8c, 0x56, 0x4b, 0xff},
}

var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.CrossGlyph{},
}

func style(i int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: tones[i%len(tones)], Shape: shapes[i%len(shapes)], Radius: 3.5}
}

// Axes are logarithmic by taking logarithms here and naming the ticks: with the
// library's own scale, an axis makes room for its label in the wrong place.

// logX makes the horizontal axis logarithmic.
func (p *picture) logX(label string) {
	p.plot.X.Label.Text = label
	p.plot.X.Tick.Marker = plot.TickerFunc(decades)
}

// logY makes the vertical axis logarithmic.
func (p *picture) logY(label string) {
	p.plot.Y.Label.Text = label
	p.plot.Y.Tick.Marker = plot.TickerFunc(decades)
	p.y = math.Log10
}

// place is where points are on the axes.
func (p *picture) place(points plotter.XYs) plotter.XYs {
	placed := make(plotter.XYs, len(points))
	for i, at := range points {
		placed[i] = plotter.XY{X: math.Log10(at.X), Y: p.y(at.Y)}
	}
	return placed
}

// decades marks 1, 2 and 5 of each power of ten, or the powers alone where
// there are many.
func decades(low, high float64) []plot.Tick {
	steps := []float64{1, 2, 5}
	if high-low > 3 {
		steps = steps[:1]
	}
	var ticks []plot.Tick
	for e := math.Floor(low); e <= math.Ceil(high); e++ {
		for _, s := range steps {
			v := s * math.Pow(10, e)
			if at := math.Log10(v); at >= low-1e-9 && at <= high+1e-9 {
				ticks = append(ticks, plot.Tick{Value: at, Label: plainNumber(v)})
			}
		}
	}
	return ticks
}

// plainNumber writes a tick.
func plainNumber(v float64) string {
	if v >= 1 {
		return thousands(int(math.Round(v)))
	}
	return strings.TrimRight(two(v), "0")
}

func (p *picture) marks(name string, points plotter.XYs, i int) error {
	scatter, err := plotter.NewScatter(p.place(points))
	if err != nil {
		return err
	}
	scatter.GlyphStyle = style(i)
	p.plot.Add(scatter)
	p.legend.Add(name, scatter)
	p.entries++
	return nil
}

func (p *picture) line(name string, points plotter.XYs, i int) error {
	line, scatter, err := plotter.NewLinePoints(p.place(points))
	if err != nil {
		return err
	}
	scatter.GlyphStyle = style(i)
	line.Color = tones[i%len(tones)]
	line.Width = 1.5
	p.plot.Add(line, scatter)
	p.legend.Add(name, line, scatter)
	p.entries++
	return nil
}

// labelled draws a mark with its name beside it for each point, the first of
// them in pubsub's colour.
func (p *picture) labelled(points plotter.XYs, names []string) error {
	placed := p.place(points)
	scatter, err := plotter.NewScatter(placed)
	if err != nil {
		return err
	}
	scatter.GlyphStyleFunc = func(i int) draw.GlyphStyle {
		if i == 0 {
			return style(0)
		}
		return draw.GlyphStyle{Color: tones[1], Shape: draw.CircleGlyph{}, Radius: 3.5}
	}
	p.plot.Add(scatter)
	for i, drop := range p.drops(placed) {
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: placed[i : i+1], Labels: names[i : i+1]})
		if err != nil {
			return err
		}
		label.TextStyle[0].Font.Size = 10
		label.Offset = vg.Point{X: 6, Y: -3 - drop}
		p.plot.Add(label)
	}
	return nil
}

// drops are how far down each label has to go so that none is written over
// another. Labels that start within a quarter of the width count as neighbours.
func (p *picture) drops(points plotter.XYs) []vg.Length {
	const lineHeight = 11
	width, height := points[0], points[0]
	for _, at := range points {
		width.X, width.Y = min(width.X, at.X), max(width.Y, at.X)
		height.X, height.Y = min(height.X, at.Y), max(height.Y, at.Y)
	}
	perUnit := float64(p.height) * 0.8 / max(height.Y-height.X, 1e-9)

	order := make([]int, len(points))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(points[b].Y, points[a].Y) })
	drops := make([]vg.Length, len(points))
	for n, i := range order {
		for _, above := range order[:n] {
			if math.Abs(points[i].X-points[above].X) > (width.Y-width.X)/4 {
				continue
			}
			gap := vg.Length((points[above].Y-points[i].Y)*perUnit) - drops[above]
			drops[i] = max(drops[i], lineHeight-gap)
		}
	}
	return drops
}

// vertical draws a line from bottom to top.
func (p *picture) vertical(x, low, high float64) {
	line, err := plotter.NewLine(p.place(plotter.XYs{{X: x, Y: low}, {X: x, Y: high}}))
	if err != nil {
		return // two finite points always make a line
	}
	line.Color = color.Gray{0x60}
	line.Dashes = []vg.Length{4, 3}
	p.plot.Add(line)
}

func (p *picture) save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	p.plot.X.Label.Padding, p.plot.Y.Label.Padding, p.plot.Title.Padding = 4, 4, 8
	svg := vgsvg.New(p.width, p.height)
	canvas := draw.New(svg)
	area := draw.Crop(canvas, 8, -12, 8, -8)
	if p.entries > 0 {
		p.plot.BackgroundColor = color.Transparent
		canvas.SetColor(color.White)
		canvas.Fill(canvas.Rectangle.Path())
		p.legend.Draw(draw.Crop(canvas, p.width-legendWidth, -4, 8, -36))
		area = draw.Crop(canvas, 8, -legendWidth-8, 8, -8)
	}
	p.plot.Draw(area)
	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return err
	}
	// Where Liberation is missing, a font of the same widths, or any sans-serif.
	text := strings.ReplaceAll(out.String(), "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	return os.WriteFile(path, []byte(text), 0o644)
}
