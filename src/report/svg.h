#pragma once
// SVG: elements, scales, colours, axes.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What charts show: lines with bands, intervals, heat maps.

namespace metaformer::figures {

enum class Scale { linear, logarithmic };

struct Axis {
  std::string label;
  Scale scale = Scale::linear;
  std::optional<std::pair<double, double>> range = std::nullopt;  // default: that of the data
};

// One line. A point whose y is not finite, or not positive on a logarithmic axis, is a gap.
struct Curve {
  std::string name = "";                    // in the legend; "": not there
  std::vector<double> x = {}, y = {};       // of one length
  std::vector<double> low = {}, high = {};  // a band around the line, of the same length; empty: none
  int color = -1;                           // number in the palette of 8; -1: the position of the curve
  bool dashed = false;
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
  Axis x;
  std::vector<Interval> rows;
  std::optional<double> reference = std::nullopt;  // a vertical line
};

// sequential: from 0 (or `HeatMap::lowest`) up, for probabilities and distances. diverging: symmetric about 0, for
// scores and weights.
enum class Palette { sequential, diverging };

struct HeatMap {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;  // [rows, columns]; NaN is left blank, as what a causal mask hides
  std::string row_title = "", column_title = "";
  std::vector<std::string> row_labels = {}, column_labels = {};  // empty: numbers are written
  Palette palette = Palette::sequential;
  std::optional<double> lowest = std::nullopt, highest = std::nullopt;  // ends of the colours; default: of the values
};

}  // namespace metaformer::figures

// SVG elements as text.

namespace metaformer::figures {

// With up to two decimals and without trailing zeros.
std::string number(double value);

// Text as content or attribute: markup and control characters escaped, bytes that are not UTF-8 replaced.
std::string escape(std::string_view text);

// Estimated width in pixels of text set in a sans-serif font of this size.
double text_width(std::string_view text, double font_size);

// Lines of at most this estimated width, broken at spaces.
std::vector<std::string> wrap(std::string_view text, double width, double font_size);

// The text itself, or its start with an ellipsis where it would be wider than this.
std::string shorten(std::string_view text, double width, double font_size);

constexpr double font_size = 11, title_size = 15, line_height = 15;

struct Rectangle {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

enum class Anchor { start, middle, end };

struct TextStyle {
  Anchor anchor = Anchor::start;
  std::string css_class = "label";
  double rotation = 0;  // degrees, clockwise
};

// Collects elements. Colours come from CSS classes, so that one file is right on light and on dark ground.
class Svg {
 public:
  // y: of the text's vertical centre.
  void text(double x, double y, std::string_view content, const TextStyle& style = {});
  void line(double x1, double y1, double x2, double y2, std::string_view css_class);
  void rectangle(const Rectangle& area, std::string_view css_class);
  void circle(double x, double y, double radius, std::string_view css_class);
  void path(std::string_view commands, std::string_view css_class);
  void open_group(std::string_view css_class, std::string_view label = "");
  void close_group();
  const std::string& content() const { return content_; }

 private:
  std::string content_;
};

}  // namespace metaformer::figures

// From values to pixels, and where an axis has its ticks.

namespace metaformer::figures {

struct Tick {
  double value = 0;
  std::string text;  // "": a mark only
};

// The smallest and largest of what was added; values that the scale cannot show are ignored.
class Extent {
 public:
  Extent() = default;
  explicit Extent(Scale scale) : scale_(scale) {}
  void add(double value);
  void add(const std::vector<double>& values);
  void widen(double fraction);  // on both sides, by a fraction of the distance between them
  double low() const { return low_; }
  double high() const { return high_; }
  bool empty() const { return low_ > high_; }

 private:
  Scale scale_ = Scale::linear;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -std::numeric_limits<double>::infinity();
};

class AxisScale {
 public:
  // Shows the axis's own range, or that of the data. Without data: 0 to 1, or 1 to 10.
  AxisScale(const Axis& axis, const Extent& data, double first_pixel, double last_pixel);

  // Whether the value has a place: finite, and positive on a logarithmic axis.
  bool shows(double value) const;
  double operator()(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }

  // About so many, at round values: 1, 2, 2.5, 5 times powers of ten.
  std::vector<Tick> ticks(int wanted) const;

 private:
  Scale scale_;
  double low_ = 0, high_ = 1, first_pixel_, last_pixel_;
};

// A number as people write it: as many decimals as the step between ticks needs, thousands with commas, far from 1 as
// 1e-5.
std::string tick_text(double value, double step);

}  // namespace metaformer::figures

// The colours of figures: 8 for curves, and levels of two palettes for values.

namespace metaformer::figures {

constexpr int curve_colors = 8, sequential_levels = 32, diverging_levels = 33;  // the middle one is zero

// Values to levels. sequential: from low to high; diverging: symmetric about 0.
class ColorScale {
 public:
  // The range of the map's own values where it does not give the ends.
  explicit ColorScale(const HeatMap& map);
  // Of all maps together, which must have one palette.
  explicit ColorScale(const std::vector<const HeatMap*>& maps);

  int level(double value) const;
  std::string css_class(int level) const;
  int levels() const;
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  Palette palette_;
  double low_ = 0, high_ = 1;
};

// The same colours as CSS variables of :root, for pages: --curve-0 ... --curve-7, --sequential-0 ... --sequential-4
// (low to high) and --diverging-0 ... --diverging-4.
std::string palette_variables();

// CSS for all classes that figures use: light colours, and dark ones where the reader prefers those.
std::string style_sheet(bool with_sequential, bool with_diverging);

}  // namespace metaformer::figures

// Axes with ticks, grid lines and labels.

namespace metaformer::figures {

void draw_x_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area);
void draw_y_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area);

}  // namespace metaformer::figures
