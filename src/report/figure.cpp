#include "report/figure.h"

#include <fmt/format.h>
#include <utf8.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace metaformer::figures {

namespace {

// SVG elements as text.

constexpr double font_size = 11, title_size = 15, line_height = 15;

constexpr std::uint32_t replacement = 0xFFFD, delete_character = 0x7F;

std::u32string code_points(std::string_view text) {
  std::string valid;
  utf8::replace_invalid(text.begin(), text.end(), std::back_inserter(valid), replacement);
  std::u32string points;
  utf8::utf8to32(valid.begin(), valid.end(), std::back_inserter(points));
  return points;
}

// Width in units of the font size, as in DejaVu Sans, which is wider than most fonts. East Asian characters fill a
// square.
double width_of(char32_t point) {
  constexpr char32_t first_wide = 0x1100;
  constexpr std::u32string_view narrow = U" .,:;'|!ijlIft()[]/-", broad = U"mwMWABCDEFGHKNOPQRSUVXY%@&";
  if (point >= first_wide && (point < 0x2000 || point > 0x2BFF)) return 1.0;
  if (narrow.find(point) != narrow.npos) return 0.37;
  return broad.find(point) != broad.npos ? 0.8 : 0.61;
}

// A number with up to two decimals and without trailing zeros.
std::string number(double value) {
  return fmt::format("{}", std::round(100 * value) / 100 + 0.0);  // not "-0"
}

// Estimated width in pixels of text set in a sans-serif font of this size.
double text_width(std::string_view text, double size = font_size) {
  double width = 0;
  for (const char32_t point : code_points(text)) width += width_of(point);
  return width * size;
}

// Lines of at most this estimated width, broken at spaces.
std::vector<std::string> wrap(std::string_view text, double width) {
  std::vector<std::string> lines;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (lines.empty() || text_width(lines.back() + " " + word) > width)
      lines.push_back(word);
    else
      lines.back() += " " + word;
  }
  return lines;
}

// The text itself, or its start with an ellipsis if it would be wider than `width`.
std::string shorten(std::string_view text, double width, double size = font_size) {
  if (text_width(text, size) <= width) return std::string(text);
  std::string result;
  double used = width_of(U'…') * size;
  for (const char32_t point : code_points(text)) {
    used += width_of(point) * size;
    if (used > width) break;
    utf8::append(static_cast<std::uint32_t>(point), std::back_inserter(result));
  }
  return result + "…";
}

struct Rectangle {
  double x = 0, y = 0, width = 0, height = 0;
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

struct TextStyle {
  std::string anchor = "start";  // or "middle", "end"
  std::string css_class = "label";
  double rotation = 0;  // degrees, clockwise
};

// Collects elements. Colours come from CSS classes, so that one file suits light and dark backgrounds.
class Svg {
 public:
  // `y`: the vertical centre of the text.
  void text(double x, double y, std::string_view content, const TextStyle& style = {}) {
    constexpr double baseline = 0.35;  // from the middle of the letters to the line they stand on, in font sizes
    const double shift = baseline * (style.css_class == "title" ? title_size : font_size);
    const auto anchor = style.anchor == "start" ? "" : fmt::format(" text-anchor=\"{}\"", style.anchor);
    const auto turn = style.rotation == 0 ? ""
                                          : fmt::format(" transform=\"rotate({} {} {})\"", number(style.rotation),
                                                        number(x), number(y));
    content_ += fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\"{}{}>{}</text>\n", style.css_class, number(x),
                            number(y + shift), anchor, turn, escape(content));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view css_class) {
    element("line", css_class, {{"x1", x1}, {"y1", y1}, {"x2", x2}, {"y2", y2}});
  }
  void rectangle(const Rectangle& area, std::string_view css_class) {
    element("rect", css_class, {{"x", area.x}, {"y", area.y}, {"width", area.width}, {"height", area.height}});
  }
  void circle(double x, double y, double radius, std::string_view css_class) {
    element("circle", css_class, {{"cx", x}, {"cy", y}, {"r", radius}});
  }
  void path(std::string_view commands, std::string_view css_class) {
    content_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", css_class, commands);
  }
  void open_group(std::string_view css_class, std::string_view label = "") {
    content_ += fmt::format("<g class=\"{}\"{}>\n", css_class,
                            label.empty() ? "" : fmt::format(" aria-label=\"{}\"", escape(label)));
  }
  void close_group() { content_ += "</g>\n"; }
  const std::string& content() const { return content_; }

 private:
  void element(std::string_view name, std::string_view css_class,
               std::initializer_list<std::pair<const char*, double>> numbers) {
    content_ += fmt::format("<{} class=\"{}\"", name, css_class);
    for (const auto& [attribute, value] : numbers) content_ += fmt::format(" {}=\"{}\"", attribute, number(value));
    content_ += "/>\n";
  }

  std::string content_;
};

using Stops = std::array<unsigned, 5>;

struct Theme {
  unsigned paper, ink, soft_ink, grid;
  std::array<unsigned, curve_colors> curves;
  std::array<Stops, 2> palettes;  // by Palette
};

struct PaletteKind {
  const char *name, *letter;
  int levels;
};
constexpr std::array<PaletteKind, 2> palette_kinds = {
    {{"sequential", "s", sequential_levels}, {"diverging", "d", diverging_levels}}};
const PaletteKind& kind_of(Palette palette) { return palette_kinds[static_cast<std::size_t>(palette)]; }

// The hues of Okabe and Ito (2008), with the lightness changed until every curve has a contrast of 3 to its background
// and all differ for colour-blind readers; tests/report/test_figures.cpp measures both. Sequential palettes begin near
// the colour of the background.
constexpr Theme light = {.paper = 0xffffff,
                         .ink = 0x1b1b19,
                         .soft_ink = 0x55544f,
                         .grid = 0xe3e2dd,
                         .curves = {0x0046ae, 0xbb4505, 0x008673, 0xd957ba, 0xac9203, 0x4490ff, 0x222222, 0x763109},
                         .palettes = {{{0xe4effc, 0xa3c8f4, 0x3987e5, 0x1c5cab, 0x0d2f5e},
                                       {0x0d4a94, 0x6ba3e8, 0xeeede9, 0xec8379, 0xa81d1a}}}};
constexpr Theme dark = {.paper = 0x1a1a19,
                        .ink = 0xf2f1ec,
                        .soft_ink = 0xb8b7b0,
                        .grid = 0x383835,
                        .curves = {0x44bbff, 0xff5c1d, 0x00a771, 0xf67bb9, 0xf4c73a, 0xbbd8e5, 0xecffff, 0xab4d25},
                        .palettes = {{{0x1c2b40, 0x1c5cab, 0x3987e5, 0x86b6ef, 0xe3effd},
                                      {0x9ac5f7, 0x2a6bc0, 0x383835, 0xc94f48, 0xf7b0aa}}}};

// Of the fourth curve and those after it, in turn; two curves of one colour have different ones.
constexpr std::array<const char*, curve_dashes> dashes = {"8 4", "2 3", "10 3 2 3", "16 4", "10 3 2 3 2 3"};

// The colour at this fraction of the way from the first stop to the last.
std::string blend(const Stops& stops, double fraction) {
  const double place = fraction * static_cast<double>(stops.size() - 1);
  const auto first = std::min(static_cast<std::size_t>(place), stops.size() - 2);
  const double weight = place - static_cast<double>(first);
  std::string color = "#";
  for (const unsigned shift : {16u, 8u, 0u}) {
    const auto channel = [&](std::size_t stop) { return static_cast<double>(stops[stop] >> shift & 0xffu); };
    color += fmt::format("{:02x}", std::lround(channel(first) * (1 - weight) + channel(first + 1) * weight));
  }
  return color;
}

std::string rules_of(const Theme& theme, const std::set<Palette>& palettes) {
  auto rules = fmt::format(
      ".paper{{fill:#{:06x}}}.label{{fill:#{:06x}}}.title,.name{{fill:#{:06x}}}.grid{{stroke:#{:06x}}}.axis,.mark,"
      ".frame{{stroke:#{:06x}}}\n",
      theme.paper, theme.soft_ink, theme.ink, theme.grid, theme.soft_ink);
  for (int curve = 0; const auto color : theme.curves)
    rules += fmt::format(".c{0}{{stroke:#{1:06x}}}.b{0},.p{0}{{fill:#{1:06x}}}", curve++, color);
  rules += "\n";
  for (const auto palette : palettes) {
    const auto& [name, letter, levels] = kind_of(palette);
    for (int level = 0; level < levels; ++level)
      rules += fmt::format(".{}{}{{fill:{}}}", letter, level,
                           blend(theme.palettes[static_cast<std::size_t>(palette)], level / (levels - 1.0)));
    rules += "\n";
  }
  return rules;
}

std::string variables_of(const Theme& theme, const char* selector) {
  std::string rules = fmt::format("{}{{", selector);
  for (int curve = 0; const auto color : theme.curves) rules += fmt::format("--curve-{}:#{:06x};", curve++, color);
  for (int i = 0; const auto* dash : dashes) rules += fmt::format("--dash-{}:{};", i++, dash);
  for (std::size_t palette = 0; palette < palette_kinds.size(); ++palette)
    for (int i = 0; i < 5; ++i)
      rules += fmt::format("--{}-{}:{};", palette_kinds[palette].name, i, blend(theme.palettes[palette], i / 4.0));
  return rules + "}";
}

// CSS for all classes that figures use: light colours, and dark ones if the reader prefers them. Curve i has the
// classes ci (stroke), bi and pi (fill); dashes are h0 ... h4; levels are s0 ... s31 and d0 ... d32.
std::string style_sheet(const std::set<Palette>& palettes) {
  std::string dash_rules;
  for (int i = 0; const auto* dash : dashes) dash_rules += fmt::format(".h{}{{stroke-dasharray:{}}}", i++, dash);
  return fmt::format(
             "text{{font-family:Helvetica,Arial,\"DejaVu Sans\",sans-serif;font-size:{}px}}.title{{font-size:{}px;"
             "font-weight:bold}}.name{{font-weight:bold}}\n.line{{fill:none;stroke-width:1.6;stroke-linejoin:round}}"
             ".thin{{stroke-width:.9}}{}.dashed{{stroke-dasharray:5 3}}"
             ".band{{fill-opacity:.16}}.dot{{fill-opacity:.75}}.grid{{stroke-width:1}}"
             ".axis{{stroke-width:1}}\n.frame{{fill:none;stroke-width:.5}}.mark{{stroke-width:1;stroke-dasharray:4 3}}"
             ".interval{{stroke-width:2}}.cells{{shape-rendering:crispEdges}}\n",
             font_size, title_size, dash_rules) +
         rules_of(light, palettes) + "@media (prefers-color-scheme:dark){\n" + rules_of(dark, palettes) + "}\n";
}

std::string with_commas(std::string digits) {
  const auto start = digits.front() == '-' ? 1u : 0u;
  auto end = std::min(digits.find('.'), digits.size());
  while (end > start + 3) digits.insert(end -= 3, ",");
  return digits;
}

// A number with as many decimals as the step between ticks needs, and commas between thousands; as 1e-5 far from 1.
std::string tick_text(double value, double step) {
  constexpr double largest = 1e7, smallest = 1e-5;
  if (std::abs(value) < 1e-9 * step) return "0";
  if (std::abs(value) >= largest || step < smallest) return fmt::format("{:.3g}", value);
  int decimals = 0;
  for (double rest = step; decimals < 6 && std::abs(rest - std::round(rest)) > 1e-6 * rest; rest *= 10) ++decimals;
  return with_commas(fmt::format("{:.{}f}", value, decimals));
}

void append(std::vector<double>& values, const std::vector<double>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

// Ticks at multiples of 1, 2, 2.5 or 5 times a power of ten.
std::vector<Tick> linear_ticks(double low, double high, int wanted) {
  const double raw = (high - low) / std::max(1, wanted), power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.5, 2.0, 1.0})
    if (raw <= factor * power * (1 + 1e-9)) step = factor * power;
  std::vector<Tick> ticks;
  const double first = std::ceil(low / step - 1e-6);
  for (double i = first; i * step <= high + 1e-6 * step; ++i) ticks.push_back({i * step, tick_text(i * step, step)});
  return ticks;
}

// Ticks at powers of ten, and at 2 and 5 times these; the latter have a text if there are few powers. Linear ticks if
// fewer than three would have a text within one decade.
std::vector<Tick> logarithmic_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / std::max(1, wanted))));
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::ceil(std::log10(high)); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      const bool named = factor == 1 ? power % stride == 0 : decades * 3 <= wanted;
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9))
        ticks.push_back({value, named ? tick_text(value, value) : ""});
    }
  }
  const auto named = std::ranges::count_if(ticks, [](const Tick& tick) { return !tick.text.empty(); });
  if (named < 3 && decades < 1) return linear_ticks(low, high, wanted);
  return ticks;
}

void check(const Figure& figure) {
  const auto fit = [](const auto& values, auto count) { return values.empty() || std::ssize(values) == count; };
  for (const auto& panel : figure.panels) {
    bool fits = true;
    if (const auto* map = std::get_if<HeatMap>(&panel.chart))
      fits = std::ssize(map->values) == map->rows * map->columns && fit(map->row_labels, map->rows) &&
             fit(map->column_labels, map->columns);
    else if (const auto* lines = std::get_if<LineChart>(&panel.chart))
      fits = std::ranges::all_of(lines->curves, [&](const Curve& curve) {
        return curve.x.size() == curve.y.size() && curve.low.size() == curve.high.size() &&
               fit(curve.low, std::ssize(curve.x));
      });
    if (!fits) fail_usage("figure '{}': lengths of one curve, or of a map and its labels, differ", panel.title);
  }
}

constexpr double tick_gap = 5;

void draw_x_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area) {
  constexpr double pixels_per_tick = 70;
  for (const auto& tick : scale.ticks(static_cast<int>(area.width / pixels_per_tick))) {
    const double x = scale(tick.value);
    svg.line(x, area.y, x, area.bottom(), "grid");
    if (!tick.text.empty()) svg.text(x, area.bottom() + tick_gap + line_height / 2, tick.text, {"middle"});
  }
  svg.line(area.x, area.bottom(), area.right(), area.bottom(), "axis");
  if (!label.empty())
    svg.text(area.x + area.width / 2, area.bottom() + tick_gap + 1.6 * line_height, label, {"middle"});
}

void draw_y_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area) {
  constexpr double pixels_per_tick = 40;
  double widest = 0;
  for (const auto& tick : scale.ticks(static_cast<int>(area.height / pixels_per_tick))) {
    const double y = scale(tick.value);
    svg.line(area.x, y, area.right(), y, "grid");
    svg.text(area.x - tick_gap, y, tick.text, {"end"});
    widest = std::max(widest, text_width(tick.text));
  }
  if (!label.empty())
    svg.text(area.x - 2 * tick_gap - widest - line_height / 2, area.y + area.height / 2, label,
             {.anchor = "middle", .rotation = -90});
}

// The size of a chart, and of the text on its four sides.
struct Room {
  double width = 0, height = 0;
  double left = 0, top = 8, right = 20, bottom = 36;
};

// Lines.

int number_of(const Curve& curve, std::size_t position) {
  return curve.color >= 0 ? curve.color : static_cast<int>(position);
}

std::string color_class(const char* kind, const Curve& curve, std::size_t position) {
  return fmt::format("{}{}", kind, number_of(curve, position) % curve_colors);
}

// From the ninth curve on colours repeat; from the fourth on curves also differ in their dashes.
std::string line_class(const Curve& curve, std::size_t position) {
  const int number = number_of(curve, position);
  auto css = color_class("line c", curve, position) + (curve.thin ? " thin" : "");
  if (curve.style == LineStyle::dashed) return css + " dashed";
  if (curve.style == LineStyle::solid || number < solid_curves) return css;
  return css + fmt::format(" h{}", (number - solid_curves) % curve_dashes);
}

struct Scales {
  AxisScale x, y;

  bool show(double at_x, double at_y) const { return x.shows(at_x) && y.shows(at_y); }
  std::string point(double at_x, double at_y) const { return fmt::format("{} {}", number(x(at_x)), number(y(at_y))); }
};

// A path through the points that can be shown; after a gap it starts anew.
std::string path_through(const Curve& curve, const Scales& scales) {
  std::string commands;
  bool drawing = false;
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    const bool shown = scales.show(curve.x[i], curve.y[i]);
    if (shown) commands += (drawing ? 'L' : 'M') + scales.point(curve.x[i], curve.y[i]);
    drawing = shown;
  }
  return commands;
}

// Closed areas between low and high, one for each stretch without a gap.
std::string band_of(const Curve& curve, const Scales& scales) {
  std::string commands;
  const auto shown = [&](std::size_t i) {
    return scales.show(curve.x[i], curve.low[i]) && scales.y.shows(curve.high[i]);
  };
  for (std::size_t start = 0, end = 0; start < curve.low.size(); start = end + 1) {
    for (end = start; end < curve.low.size() && shown(end);) ++end;
    if (end == start) continue;
    for (std::size_t i = start; i < end; ++i)
      commands += (i == start ? 'M' : 'L') + scales.point(curve.x[i], curve.high[i]);
    for (std::size_t i = end; i-- > start;) commands += 'L' + scales.point(curve.x[i], curve.low[i]);
    commands += 'Z';
  }
  return commands;
}

Room room_of(const LineChart&, double width) {
  return {.width = width, .height = std::round(width * 0.56), .left = 62};
}

void draw(Svg& svg, const LineChart& chart, const Rectangle& area) {
  std::vector<double> x, y;
  for (const auto& curve : chart.curves) {
    append(x, curve.x);
    for (const auto* values : {&curve.y, &curve.low, &curve.high}) append(y, *values);
  }
  const Scales scales{AxisScale(chart.x.scale, x, area.x, area.right()),
                      AxisScale(chart.y.scale, y, area.bottom(), area.y, /*margin=*/0.03)};
  draw_x_axis(svg, scales.x, chart.x.label, area);
  draw_y_axis(svg, scales.y, chart.y.label, area);
  for (std::size_t i = 0; i < chart.curves.size(); ++i)
    if (const auto band = band_of(chart.curves[i], scales); !band.empty())
      svg.path(band, color_class("band b", chart.curves[i], i));
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const auto& curve = chart.curves[i];
    if (const auto path = path_through(curve, scales); !path.empty()) svg.path(path, line_class(curve, i));
    if (curve.x.size() == 1 && scales.show(curve.x[0], curve.y[0]))
      svg.circle(scales.x(curve.x[0]), scales.y(curve.y[0]), 3, color_class("p", curve, i));
    if (!curve.labelled || curve.x.empty() || !scales.show(curve.x.back(), curve.y.back())) continue;
    const double at = scales.x(curve.x.back());
    const bool is_right = at > area.x + area.width / 2;
    svg.text(at + (is_right ? -6 : 6), scales.y(curve.y.back()) - 7, curve.name, {is_right ? "end" : "start"});
  }
}

double at_least_one(std::int64_t count) { return static_cast<double>(std::max<std::int64_t>(1, count)); }

// Intervals.

constexpr double longest_name = 260, name_gap = 10;

Room room_of(const IntervalChart& chart, double width) {
  constexpr double row_height = 24;
  double widest = 40;
  for (const auto& row : chart.rows) widest = std::max(widest, text_width(row.name));
  return {.width = width,
          .height = row_height * at_least_one(std::ssize(chart.rows)),
          .left = std::min(widest, longest_name) + name_gap};
}

void draw(Svg& svg, const IntervalChart& chart, const Rectangle& area) {
  std::vector<double> values;
  if (chart.reference) values.push_back(*chart.reference);
  for (const auto& row : chart.rows) {
    append(values, row.points);
    append(values, {row.value, row.low, row.high});
  }
  constexpr double inset = 8;  // dots at the ends stay inside
  const AxisScale scale(Scale::linear, values, area.x + inset, area.right() - inset);
  draw_x_axis(svg, scale, chart.label, area);
  if (chart.reference) svg.line(scale(*chart.reference), area.y, scale(*chart.reference), area.bottom(), "mark");
  const double step = area.height / at_least_one(std::ssize(chart.rows));
  for (std::size_t i = 0; i < chart.rows.size(); ++i) {
    const auto& row = chart.rows[i];
    const double y = area.y + (static_cast<double>(i) + 0.5) * step;
    svg.text(area.x - name_gap, y, shorten(row.name, longest_name), {"end"});
    if (row.low < row.high && scale.shows(row.low) && scale.shows(row.high))
      svg.line(scale(row.low), y, scale(row.high), y, "interval c0");
    for (const double point : row.points)
      if (scale.shows(point)) svg.circle(scale(point), y, 2.5, "p1 dot");
    if (scale.shows(row.value)) svg.circle(scale(row.value), y, 4, "p0");
  }
}

// Heat maps.

constexpr double longest_label = 70, label_gap = 4;
constexpr double color_bar_width = 12, color_bar_room = 62;  // with its numbers

// The rows or the columns of a map.
struct MapSide {
  std::vector<std::string> labels;  // empty: numbers are written, also if cells are too small for labels
  std::string title;
  double count, cell, widest = 0;

  MapSide(const std::vector<std::string>& names, std::string title, std::int64_t count, double cell)
      : title(std::move(title)), count(static_cast<double>(count)), cell(cell) {
    constexpr double smallest_cell = 9;
    if (cell >= smallest_cell) labels = names;
    for (const auto& label : labels) widest = std::max(widest, std::min(text_width(label), longest_label));
  }

  // Labels that are wider than a cell are turned.
  bool is_turned() const { return widest > cell; }
  double height() const { return is_turned() ? widest + label_gap : line_height; }

  // The labels or, without labels, 0 and the multiples of a round step.
  std::vector<Tick> ticks() const {
    constexpr double pixels_per_number = 42;
    std::vector<Tick> ticks;
    for (std::size_t i = 0; i < labels.size(); ++i)
      ticks.push_back({static_cast<double>(i), shorten(labels[i], longest_label)});
    if (!labels.empty()) return ticks;
    const AxisScale places(Scale::linear, {0, std::max(1.0, count - 1)}, 0, 1);
    ticks = places.ticks(static_cast<int>(count * cell / pixels_per_number));
    std::erase_if(ticks, [](const Tick& tick) { return tick.value != std::floor(tick.value); });
    for (auto& tick : ticks) tick.text = tick_text(tick.value, 1);
    return ticks;
  }
};

MapSide rows_of(const HeatMap& map, double cell) { return {map.row_labels, map.row_title, map.rows, cell}; }
MapSide columns_of(const HeatMap& map, double cell) { return {map.column_labels, map.column_title, map.columns, cell}; }

Room room_of(const HeatMap& map, double width) {
  constexpr double number_width = 22, largest_cell = 26;
  const double rows = at_least_one(map.rows), columns = at_least_one(map.columns);
  const double cell = std::min({largest_cell, width / columns, width / rows});
  const auto left = rows_of(map, cell), below = columns_of(map, cell);
  Room room{.width = cell * columns, .height = cell * rows, .left = 2 * label_gap, .top = 4, .right = 4};
  room.left += left.labels.empty() ? number_width : left.widest;
  room.left += left.title.empty() ? 0 : line_height;
  room.bottom = label_gap + below.height() + (below.title.empty() ? 0 : line_height);
  return room;
}

// One path for each colour, with neighbours in a row as one rectangle.
void draw_cells(Svg& svg, const HeatMap& map, const ColorScale& colors, const Rectangle& area, double cell) {
  std::map<int, std::string> paths;
  const auto level_at = [&](std::int64_t row, std::int64_t column) {
    const double value = map.values[static_cast<std::size_t>(row * map.columns + column)];
    return std::isfinite(value) ? colors.level(value) : -1;
  };
  for (std::int64_t row = 0; row < map.rows; ++row) {
    for (std::int64_t first = 0, last = 0; first < map.columns; first = last) {
      const int level = level_at(row, first);
      for (last = first + 1; last < map.columns && level_at(row, last) == level;) ++last;
      if (level < 0) continue;
      const double width = static_cast<double>(last - first) * cell;
      paths[level] +=
          fmt::format("M{} {}h{}v{}h{}z", number(area.x + static_cast<double>(first) * cell),
                      number(area.y + static_cast<double>(row) * cell), number(width), number(cell), number(-width));
    }
  }
  svg.open_group("cells");
  for (const auto& [level, commands] : paths) svg.path(commands, colors.css_class(level));
  svg.close_group();
}

void label_rows(Svg& svg, const MapSide& rows, const Rectangle& area) {
  double used = rows.widest;
  for (const auto& [row, text] : rows.ticks()) {
    svg.text(area.x - label_gap, area.y + (row + 0.5) * rows.cell, text, {"end"});
    if (rows.labels.empty()) used = std::max(used, text_width(text));
  }
  if (!rows.title.empty())
    svg.text(area.x - 2 * label_gap - used - line_height / 2, area.y + area.height / 2, rows.title,
             {.anchor = "middle", .rotation = -90});
}

void label_columns(Svg& svg, const MapSide& columns, const Rectangle& area) {
  const bool turned = columns.is_turned();
  for (const auto& [column, text] : columns.ticks())
    svg.text(area.x + (column + 0.5) * columns.cell, area.bottom() + (turned ? label_gap : line_height / 2 + 1), text,
             {.anchor = turned ? "end" : "middle", .rotation = turned ? -90.0 : 0.0});
  if (!columns.title.empty())
    svg.text(area.x + area.width / 2, area.bottom() + columns.height() + line_height / 2 + 1, columns.title,
             {"middle"});
}

// A vertical bar with the values of its ends and some between them.
void draw_color_bar(Svg& svg, const ColorScale& colors, double x, double y, double height) {
  const Rectangle area{x, y, color_bar_width, std::min(200.0, height)};
  const AxisScale scale(Scale::linear, {colors.low(), colors.high()}, area.bottom(), area.y);
  const double step = area.height / colors.levels();
  svg.open_group("cells");
  for (int level = 0; level < colors.levels(); ++level)
    svg.rectangle({area.x, area.bottom() - (level + 1) * step, area.width, step}, colors.css_class(level));
  svg.close_group();
  svg.rectangle(area, "frame");
  for (const auto& tick : scale.ticks(4)) {
    svg.line(area.right(), scale(tick.value), area.right() + 3, scale(tick.value), "axis");
    svg.text(area.right() + 6, scale(tick.value), tick.text);
  }
}

// Panels row by row; every column and every row is as large as its largest panel.

constexpr double border = 14, panel_gap = 14, panel_title_height = 20;

// The sum of the first `end` sizes, with a gap after each.
double before(const std::vector<double>& sizes, std::size_t end) {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(end),
                         panel_gap * static_cast<double>(end));
}

class FigureWriter {
 public:
  explicit FigureWriter(const Figure& figure) : figure_(figure) {
    const auto count = figure.panels.size();
    const auto columns = static_cast<std::size_t>(
        std::clamp<std::int64_t>(figure.columns, 1, std::max<std::int64_t>(1, std::ssize(figure.panels))));
    const double panel_width = columns == 1 ? 560 : columns == 2 ? 330 : columns == 3 ? 230 : 150;
    std::vector<Room> rooms;
    std::vector<double> widths(columns), heights((count + columns - 1) / columns);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [title, chart] = figure.panels[i];
      auto& room = rooms.emplace_back(std::visit([&](const auto& any) { return room_of(any, panel_width); }, chart));
      if (!title.empty()) room.top += panel_title_height;
      if (const auto* map = std::get_if<HeatMap>(&chart)) {
        maps_.push_back(map);
        if (!figure.same_colors) room.right += color_bar_room + panel_gap;
      }
      widths[i % columns] = std::max(widths[i % columns], room.left + room.width + room.right);
      heights[i / columns] = std::max(heights[i / columns], room.top + room.height + room.bottom);
    }
    for (std::size_t i = 0; i < count; ++i)
      areas_.push_back({before(widths, i % columns) + rooms[i].left, before(heights, i / columns) + rooms[i].top,
                        rooms[i].width, rooms[i].height});
    constexpr double least_width = 280;
    width_ = std::max(least_width, before(widths, columns) - panel_gap) + 2 * border +
             (shares_bar() ? color_bar_room + panel_gap : 0);
    height_ = std::max(0.0, before(heights, heights.size()) - panel_gap);
  }

  std::string write() {
    draw_heading();
    draw_legend();
    for (std::size_t i = 0; i < figure_.panels.size(); ++i) draw_panel(figure_.panels[i], areas_[i]);
    if (shares_bar())
      draw_color_bar(svg_, ColorScale(maps_), width_ - border - color_bar_room, y_ + panel_title_height,
                     height_ - 2 * panel_title_height);
    std::set<Palette> palettes;
    for (const auto* map : maps_) palettes.insert(map->palette);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
        "aria-labelledby=\"title description\">\n<title id=\"title\">{2}</title>\n<desc id=\"description\">{3}</desc>\n"
        "<style>\n{4}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{5}</svg>\n",
        number(std::ceil(width_)), number(std::ceil(y_ + height_ + border)), escape(figure_.title),
        escape(figure_.description), style_sheet(palettes), svg_.content());
  }

 private:
  bool shares_bar() const { return figure_.same_colors && !maps_.empty(); }

  void draw_heading() {
    if (!figure_.title.empty()) {
      svg_.text(border, y_ + title_size / 2, shorten(figure_.title, width_ - 2 * border, title_size),
                {.css_class = "title"});
      y_ += title_size + 8;
    }
    for (const auto& line : wrap(figure_.description, width_ - 2 * border)) {
      svg_.text(border, y_ + line_height / 2, line);
      y_ += line_height;
    }
    y_ += 6;
  }

  // Draws each name of a curve once.
  void draw_legend() {
    constexpr double swatch = 22, entry_gap = 16;
    std::set<std::string> names = {""};
    double x = border;
    for (const auto& panel : figure_.panels) {
      const auto* chart = std::get_if<LineChart>(&panel.chart);
      for (std::size_t i = 0; chart != nullptr && i < chart->curves.size(); ++i) {
        const auto& curve = chart->curves[i];
        if (curve.labelled || !names.insert(curve.name).second) continue;
        const auto name = shorten(curve.name, width_ - 2 * border - swatch);
        const double needed = swatch + text_width(name) + entry_gap;
        if (x > border && x + needed > width_ - border) {
          x = border;
          y_ += line_height + 2;
        }
        svg_.line(x, y_ + line_height / 2, x + swatch - 6, y_ + line_height / 2, line_class(curve, i));
        svg_.text(x + swatch, y_ + line_height / 2, name);
        x += needed;
      }
    }
    if (names.size() > 1) y_ += line_height + 8;
  }

  void draw_chart(const auto& chart, const Rectangle& area) { draw(svg_, chart, area); }
  void draw_chart(const HeatMap& map, const Rectangle& area) {
    const ColorScale colors(figure_.same_colors ? maps_ : std::vector{&map});
    const double cell = area.width / at_least_one(map.columns);
    draw_cells(svg_, map, colors, area, cell);
    svg_.rectangle(area, "frame");
    label_rows(svg_, rows_of(map, cell), area);
    label_columns(svg_, columns_of(map, cell), area);
    if (!figure_.same_colors) draw_color_bar(svg_, colors, area.right() + panel_gap, area.y, area.height);
  }

  void draw_panel(const Panel& panel, Rectangle area) {
    area.x += border;
    area.y += y_;
    svg_.open_group("panel", panel.title);
    if (!panel.title.empty())
      svg_.text(area.x, area.y - panel_title_height / 2 - 2, panel.title, {.css_class = "name"});
    std::visit([&](const auto& chart) { draw_chart(chart, area); }, panel.chart);
    svg_.close_group();
  }

  const Figure& figure_;
  std::vector<Rectangle> areas_;  // of the charts, from the upper left corner of the first panel; titles are above
  std::vector<const HeatMap*> maps_;
  Svg svg_;
  double width_ = 0, height_ = 0;  // of the figure, and of its panels
  double y_ = border;
};

}  // namespace

std::string escape(std::string_view text) {
  static const std::map<char32_t, const char*> entities = {
      {U'&', "&amp;"}, {U'<', "&lt;"}, {U'>', "&gt;"}, {U'"', "&quot;"}};
  std::string result;
  for (const char32_t point : code_points(text)) {
    const bool control = point < U' ' || point == delete_character || point == 0xFFFE || point == 0xFFFF;
    if (const auto entity = entities.find(point); entity != entities.end())
      result += entity->second;
    else
      utf8::append(control ? replacement : static_cast<std::uint32_t>(point), std::back_inserter(result));
  }
  return result;
}

std::string palette_variables() {
  return variables_of(light, ":root") + "\n@media screen and (prefers-color-scheme:dark){" +
         variables_of(dark, ":root:not([data-paper])") + "}";
}

AxisScale::AxisScale(Scale scale, const std::vector<double>& values, double first_pixel, double last_pixel,
                     double margin)
    : scale_(scale), low_(0), high_(1), first_pixel_(first_pixel), last_pixel_(last_pixel) {
  const bool logarithmic = scale_ == Scale::logarithmic;
  if (logarithmic) std::tie(low_, high_) = std::pair(1.0, 10.0);
  auto shown = values;
  std::erase_if(shown, [&](double value) { return !shows(value); });
  if (shown.empty()) return;
  const auto [low, high] = std::ranges::minmax(shown);
  const double around = low < high ? margin * (high - low) : low == 0 ? 1 : std::abs(low) / 2;
  const double factor = low < high ? std::pow(high / low, margin) : 2;
  low_ = logarithmic ? low / factor : low - around;
  high_ = logarithmic ? high * factor : high + around;
}

double AxisScale::operator()(double value) const {
  const double fraction =
      scale_ == Scale::linear ? (value - low_) / (high_ - low_) : std::log(value / low_) / std::log(high_ / low_);
  return first_pixel_ + fraction * (last_pixel_ - first_pixel_);
}

std::vector<Tick> AxisScale::ticks(int wanted) const {
  return scale_ == Scale::linear ? linear_ticks(low_, high_, wanted) : logarithmic_ticks(low_, high_, wanted);
}

ColorScale::ColorScale(const std::vector<const HeatMap*>& maps) : palette_(maps.front()->palette) {
  std::vector<double> values = {0};
  for (const auto* map : maps) {
    append(values, map->values);
    values.push_back(map->top.value_or(0));
  }
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  std::tie(low_, high_) = std::pair(std::ranges::min(values), std::ranges::max(values));
  if (low_ == high_) high_ = 1;
  if (palette_ == Palette::diverging) low_ = -(high_ = std::max(high_, -low_));
}

int ColorScale::levels() const { return kind_of(palette_).levels; }

int ColorScale::level(double value) const {
  const double fraction = std::clamp((value - low_) / (high_ - low_), 0.0, 1.0);
  return std::min(static_cast<int>(fraction * levels()), levels() - 1);
}

std::string ColorScale::css_class(int level) const { return kind_of(palette_).letter + std::to_string(level); }

std::string to_svg(const Figure& figure) {
  check(figure);
  return FigureWriter(figure).write();
}

}  // namespace metaformer::figures
