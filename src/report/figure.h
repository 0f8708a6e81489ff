#pragma once
// Figures as SVG: lines with bands, intervals or heat maps, one or many in a grid. The same input gives the same bytes.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace metaformer::figures {

enum class Scale { linear, logarithmic };

struct Axis {
  std::string label;
  Scale scale = Scale::linear;
};

enum class LineStyle { by_number, solid, dashed };  // by_number: from the fourth curve on dashes that differ

// One line. A point whose y is not finite, or not positive on a logarithmic axis, is a gap.
struct Curve {
  std::string name = "";                    // in the legend; "": not in the legend
  std::vector<double> x = {}, y = {};       // of one length
  std::vector<double> low = {}, high = {};  // a band around the line, of the same length; empty: none
  int color = -1;                           // number in the palette of 8; -1: the position of the curve
  LineStyle style = LineStyle::by_number;
  bool thin = false;
  bool labelled = false;  // its name stands beside its last point, and not in the legend
};

struct LineChart {
  Axis x, y;
  std::vector<Curve> curves;
};

// Rows with a name, a value and its interval, from top to bottom.
struct Interval {
  std::string name;
  double value = 0;
  double low = 0, high = 0;         // equal to the value: no interval is drawn
  std::vector<double> points = {};  // small dots: the values that the row summarises
};

struct IntervalChart {
  std::string label;  // of the axis
  std::vector<Interval> rows;
  std::optional<double> reference = std::nullopt;  // a vertical line
};

// sequential: from 0 up, for probabilities and distances. diverging: symmetric about 0, for scores and weights.
enum class Palette { sequential, diverging };

struct HeatMap {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;  // [rows, columns]; NaN is left blank, such as a cell that a causal mask hides
  std::string row_title = "", column_title = "";
  std::vector<std::string> row_labels = {}, column_labels = {};  // empty: numbers are written
  Palette palette = Palette::sequential;
  std::optional<double> top = std::nullopt;  // the colours reach at least this value
};

struct Panel {
  std::string title;
  std::variant<LineChart, IntervalChart, HeatMap> chart;
};

struct Figure {
  std::string title;
  std::string description;    // for readers who cannot see it, and the line below the title
  std::vector<Panel> panels;  // row by row
  std::int64_t columns = 1;   // panels in a row
  bool same_colors = false;   // heat maps, of one palette, share a colour scale, drawn once
};

// Colours for curves, dashes for the fourth curve and those after it, and levels of two palettes for values; the middle
// level of the diverging one is zero.
constexpr int curve_colors = 8, curve_dashes = 5, solid_curves = 3, sequential_levels = 32, diverging_levels = 33;

// The colours as CSS variables of :root, for pages: --curve-0 ... --curve-7, --dash-0 ... --dash-4, --sequential-0 ...
// --sequential-4 (low to high) and --diverging-0 ... --diverging-4. Those of dark ground do not apply to a :root with
// the attribute data-paper.
std::string palette_variables();

// Text as content or attribute: markup and control characters escaped, bytes that are not UTF-8 replaced.
std::string escape(std::string_view text);

// A complete SVG file, in light or dark colours as the reader prefers. Errors (exit code 2): lengths differ.
std::string to_svg(const Figure& figure);

struct Tick {
  double value = 0;
  std::string text;  // "": a mark only
};

// Maps values to pixels, and chooses the ticks of an axis.
class AxisScale {
 public:
  // The axis extends from the lowest to the highest value that it can show, and beyond both by `margin` of their
  // distance. A single value is in the middle. Without values: 0 to 1, or 1 to 10 on a logarithmic axis.
  AxisScale(Scale scale, const std::vector<double>& values, double first_pixel, double last_pixel, double margin = 0);

  // Whether the value has a place: finite, and positive on a logarithmic axis.
  bool shows(double value) const { return std::isfinite(value) && (scale_ == Scale::linear || value > 0); }
  double operator()(double value) const;

  // About `wanted` ticks at round values: 1, 2, 2.5, 5 times powers of ten.
  std::vector<Tick> ticks(int wanted) const;

 private:
  Scale scale_;
  double low_, high_, first_pixel_, last_pixel_;
};

// Maps values to the levels of a palette, on one scale for all maps, which have the same palette.
class ColorScale {
 public:
  explicit ColorScale(const std::vector<const HeatMap*>& maps);

  int levels() const;
  int level(double value) const;
  std::string css_class(int level) const;
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  Palette palette_;
  double low_ = 0, high_ = 1;
};

}  // namespace metaformer::figures
