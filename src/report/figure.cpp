#include "report/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "report/svg.h"

namespace metaformer::figures {

namespace {

std::string with_commas(std::string digits) {
  const auto start = digits.front() == '-' ? 1u : 0u;
  auto end = std::min(digits.find('.'), digits.size());
  while (end > start + 3) digits.insert(end -= 3, ",");
  return digits;
}

// A number as people write it: as many decimals as the step between ticks needs, thousands with commas, far from 1 as
// 1e-5.
std::string tick_text(double value, double step) {
  constexpr double largest = 1e7, smallest = 1e-5;
  if (std::abs(value) < 1e-9 * step) return "0";
  if (std::abs(value) >= largest || step < smallest) return fmt::format("{:.3g}", value);
  int decimals = 0;
  for (double rest = step; decimals < 6 && std::abs(rest - std::round(rest)) > 1e-6 * rest; rest *= 10) ++decimals;
  return with_commas(fmt::format("{:.{}f}", value, decimals));
}

double round_step(double width, int wanted) {
  const double raw = width / std::max(1, wanted);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

std::vector<Tick> linear_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const double step = round_step(high - low, wanted);
  const double first = std::ceil(low / step - 1e-6);
  for (double i = first; i * step <= high + 1e-6 * step; ++i) ticks.push_back({i * step, tick_text(i * step, step)});
  return ticks;
}

// Powers of ten; 2 and 5 between them where there are few.
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
  return ticks;
}

}  // namespace

void Extent::add(const std::vector<double>& values) {
  for (const double value : values) {
    if (!std::isfinite(value) || (scale == Scale::logarithmic && value <= 0)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
}

void Extent::widen(double fraction) {
  if (empty()) return;
  if (scale == Scale::linear) {
    const double more = fraction * (high - low);
    low -= more;
    high += more;
  } else {
    const double factor = std::pow(high / low, fraction);
    low /= factor;
    high *= factor;
  }
}

AxisScale::AxisScale(const Extent& data, double first_pixel, double last_pixel)
    : scale_(data.scale), low_(data.low), high_(data.high), first_pixel_(first_pixel), last_pixel_(last_pixel) {
  const bool logarithmic = scale_ == Scale::logarithmic;
  if (data.empty()) std::tie(low_, high_) = logarithmic ? std::pair(1.0, 10.0) : std::pair(0.0, 1.0);
  if (low_ < high_) return;
  const double around = low_ == 0 ? 1 : std::abs(low_) / 2;
  low_ = logarithmic ? low_ / 2 : low_ - around;
  high_ = logarithmic ? high_ * 2 : high_ + around;
}

bool AxisScale::shows(double value) const { return std::isfinite(value) && (scale_ == Scale::linear || value > 0); }

double AxisScale::operator()(double value) const {
  const double fraction =
      scale_ == Scale::linear ? (value - low_) / (high_ - low_) : std::log(value / low_) / std::log(high_ / low_);
  return first_pixel_ + fraction * (last_pixel_ - first_pixel_);
}

std::vector<Tick> AxisScale::ticks(int wanted) const {
  return scale_ == Scale::linear ? linear_ticks(low_, high_, wanted) : logarithmic_ticks(low_, high_, wanted);
}

ColorScale::ColorScale(const std::vector<const HeatMap*>& maps) : palette_(maps.front()->palette) {
  Extent extent;
  for (const auto* map : maps) {
    extent.add(map->values);
    if (map->top) extent.add({*map->top});
  }
  if (!extent.empty()) std::tie(low_, high_) = std::pair(std::min(0.0, extent.low), extent.high);
  if (palette_ == Palette::diverging) {
    if (!extent.empty()) high_ = std::max(std::abs(extent.high), std::abs(extent.low));
    low_ = -high_;
  }
  if (!(low_ < high_)) high_ = low_ + 1;
}

int ColorScale::levels() const { return palette_ == Palette::sequential ? sequential_levels : diverging_levels; }

int ColorScale::level(double value) const {
  const double fraction = std::clamp((value - low_) / (high_ - low_), 0.0, 1.0);
  return std::min(static_cast<int>(fraction * levels()), levels() - 1);
}

std::string ColorScale::css_class(int level) const {
  return fmt::format("{}{}", palette_ == Palette::sequential ? "s" : "d", level);
}

namespace {

void check(const Figure& figure) {
  for (const auto& panel : figure.panels) {
    const auto require = [&](bool condition, const char* defect) {
      if (!condition) throw Error(ExitCode::usage, fmt::format("figure '{}': {}", panel.title, defect));
    };
    if (const auto* map = std::get_if<HeatMap>(&panel.chart)) {
      require(std::ssize(map->values) == map->rows * map->columns, "the map does not have rows * columns values");
      for (const auto& [labels, count] : {std::pair(&map->row_labels, map->rows), {&map->column_labels, map->columns}})
        require(labels->empty() || std::ssize(*labels) == count,
                "the map does not have a label for each row and column");
    } else if (const auto* lines = std::get_if<LineChart>(&panel.chart)) {
      for (const auto& curve : lines->curves)
        require(curve.x.size() == curve.y.size() && curve.low.size() == curve.high.size() &&
                    (curve.low.empty() || curve.low.size() == curve.x.size()),
                "a curve does not have as many values as positions");
    }
  }
}

constexpr double tick_gap = 5;

void draw_x_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area) {
  constexpr double pixels_per_tick = 70;
  for (const auto& tick : scale.ticks(static_cast<int>(area.width / pixels_per_tick))) {
    const double x = scale(tick.value);
    svg.line(x, area.y, x, area.bottom(), "grid");
    if (!tick.text.empty()) svg.text(x, area.bottom() + tick_gap + line_height / 2, tick.text, {Anchor::middle});
  }
  svg.line(area.x, area.bottom(), area.right(), area.bottom(), "axis");
  if (!label.empty())
    svg.text(area.x + area.width / 2, area.bottom() + tick_gap + 1.6 * line_height, label, {Anchor::middle});
}

void draw_y_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area) {
  constexpr double pixels_per_tick = 40;
  double widest = 0;
  for (const auto& tick : scale.ticks(static_cast<int>(area.height / pixels_per_tick))) {
    const double y = scale(tick.value);
    svg.line(area.x, y, area.right(), y, "grid");
    svg.text(area.x - tick_gap, y, tick.text, {Anchor::end});
    widest = std::max(widest, text_width(tick.text));
  }
  if (!label.empty())
    svg.text(area.x - 2 * tick_gap - widest - line_height / 2, area.y + area.height / 2, label,
             {.anchor = Anchor::middle, .rotation = -90});
}

// The size of a chart, and of the text on its four sides.
struct Room {
  double width = 0, height = 0;
  double left = 0, top = 8, right = 20, bottom = 36;
};

// Lines.

int color_of(const Curve& curve, std::size_t position) {
  return curve.color >= 0 ? curve.color % curve_colors : static_cast<int>(position % curve_colors);
}

// From the ninth curve on colours repeat, dashed.
bool is_dashed(const Curve& curve, std::size_t position) {
  const auto number = curve.color >= 0 ? static_cast<std::size_t>(curve.color) : position;
  return curve.dashed || number / curve_colors % 2 == 1;
}

std::string line_class(const Curve& curve, std::size_t position) {
  return fmt::format("line c{}{}", color_of(curve, position), is_dashed(curve, position) ? " dashed" : "");
}

struct Scales {
  AxisScale x, y;

  bool show(double at_x, double at_y) const { return x.shows(at_x) && y.shows(at_y); }
  std::string point(double at_x, double at_y) const { return fmt::format("{} {}", number(x(at_x)), number(y(at_y))); }
};

// A path through the points that can be shown; a gap starts it anew.
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
  Extent x(chart.x.scale), y(chart.y.scale);
  for (const auto& curve : chart.curves) {
    x.add(curve.x);
    for (const auto* values : {&curve.y, &curve.low, &curve.high}) y.add(*values);
  }
  y.widen(0.03);
  const Scales scales{AxisScale(x, area.x, area.right()), AxisScale(y, area.bottom(), area.y)};
  draw_x_axis(svg, scales.x, chart.x.label, area);
  draw_y_axis(svg, scales.y, chart.y.label, area);
  for (std::size_t i = 0; i < chart.curves.size(); ++i)
    if (const auto band = band_of(chart.curves[i], scales); !band.empty())
      svg.path(band, fmt::format("band b{}", color_of(chart.curves[i], i)));
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const auto& curve = chart.curves[i];
    if (const auto path = path_through(curve, scales); !path.empty()) svg.path(path, line_class(curve, i));
    if (curve.x.size() == 1 && scales.show(curve.x[0], curve.y[0]))
      svg.circle(scales.x(curve.x[0]), scales.y(curve.y[0]), 3, fmt::format("p{}", color_of(curve, i)));
  }
}

// Intervals.

constexpr double longest_name = 260, name_gap = 10;

Room room_of(const IntervalChart& chart, double width) {
  constexpr double row_height = 24;
  double widest = 40;
  for (const auto& row : chart.rows) widest = std::max(widest, text_width(row.name));
  return {.width = width,
          .height = row_height * static_cast<double>(std::max<std::size_t>(1, chart.rows.size())),
          .left = std::min(widest, longest_name) + name_gap};
}

void draw(Svg& svg, const IntervalChart& chart, const Rectangle& area) {
  Extent values;
  if (chart.reference) values.add({*chart.reference});
  for (const auto& row : chart.rows) {
    values.add(row.points);
    values.add({row.value, row.low, row.high});
  }
  constexpr double inset = 8;  // dots at the ends stay inside
  const AxisScale scale(values, area.x + inset, area.right() - inset);
  draw_x_axis(svg, scale, chart.label, area);
  if (chart.reference) svg.line(scale(*chart.reference), area.y, scale(*chart.reference), area.bottom(), "mark");
  const double step = area.height / static_cast<double>(std::max<std::size_t>(1, chart.rows.size()));
  for (std::size_t i = 0; i < chart.rows.size(); ++i) {
    const auto& row = chart.rows[i];
    const double y = area.y + (static_cast<double>(i) + 0.5) * step;
    svg.text(area.x - name_gap, y, shorten(row.name, longest_name), {Anchor::end});
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

bool has_labels(const std::vector<std::string>& labels, double cell) {
  constexpr double smallest_cell = 9;
  return !labels.empty() && cell >= smallest_cell;
}

double widest(const std::vector<std::string>& labels) {
  double width = 0;
  for (const auto& label : labels) width = std::max(width, text_width(label));
  return std::min(width, longest_label);
}

// Names of one character stand upright, longer ones are turned.
bool is_turned(const std::vector<std::string>& labels, double cell) {
  return has_labels(labels, cell) && widest(labels) > cell;
}

Room room_of(const HeatMap& map, double width) {
  constexpr double number_width = 22, largest_cell = 26;
  const auto rows = static_cast<double>(std::max<std::int64_t>(1, map.rows));
  const auto columns = static_cast<double>(std::max<std::int64_t>(1, map.columns));
  const double cell = std::min({largest_cell, width / columns, width / rows});
  Room room{.width = cell * columns, .height = cell * rows, .left = 2 * label_gap, .top = 4, .right = 4};
  room.left += has_labels(map.row_labels, cell) ? widest(map.row_labels) : number_width;
  if (!map.row_title.empty()) room.left += line_height;
  room.bottom = label_gap + (is_turned(map.column_labels, cell) ? widest(map.column_labels) + label_gap : line_height);
  if (!map.column_title.empty()) room.bottom += line_height;
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

// At an axis without labels the numbers 0 and multiples of a round step.
std::vector<Tick> labels_of(const std::vector<std::string>& labels, std::int64_t count, double cell) {
  constexpr double pixels_per_number = 42;
  std::vector<Tick> ticks;
  if (has_labels(labels, cell)) {
    for (std::size_t i = 0; i < labels.size(); ++i)
      ticks.push_back({static_cast<double>(i), shorten(labels[i], longest_label)});
    return ticks;
  }
  const Extent places(Scale::linear, {0, static_cast<double>(std::max<std::int64_t>(1, count - 1))});
  ticks = AxisScale(places, 0, 1).ticks(static_cast<int>(static_cast<double>(count) * cell / pixels_per_number));
  std::erase_if(ticks, [](const Tick& tick) { return tick.value != std::floor(tick.value); });
  for (auto& tick : ticks) tick.text = tick_text(tick.value, 1);
  return ticks;
}

void label_rows(Svg& svg, const HeatMap& map, const Rectangle& area, double cell) {
  double used = has_labels(map.row_labels, cell) ? widest(map.row_labels) : 0;
  for (const auto& [row, text] : labels_of(map.row_labels, map.rows, cell)) {
    svg.text(area.x - label_gap, area.y + (row + 0.5) * cell, text, {Anchor::end});
    if (!has_labels(map.row_labels, cell)) used = std::max(used, text_width(text));
  }
  if (!map.row_title.empty())
    svg.text(area.x - 2 * label_gap - used - line_height / 2, area.y + area.height / 2, map.row_title,
             {.anchor = Anchor::middle, .rotation = -90});
}

void label_columns(Svg& svg, const HeatMap& map, const Rectangle& area, double cell) {
  const bool turned = is_turned(map.column_labels, cell);
  const double used = turned ? widest(map.column_labels) + label_gap : line_height;
  for (const auto& [column, text] : labels_of(map.column_labels, map.columns, cell))
    svg.text(area.x + (column + 0.5) * cell, area.bottom() + (turned ? label_gap : line_height / 2 + 1), text,
             {.anchor = turned ? Anchor::end : Anchor::middle, .rotation = turned ? -90.0 : 0.0});
  if (!map.column_title.empty())
    svg.text(area.x + area.width / 2, area.bottom() + used + line_height / 2 + 1, map.column_title, {Anchor::middle});
}

void draw(Svg& svg, const HeatMap& map, const ColorScale& colors, const Rectangle& area) {
  const double cell = area.width / static_cast<double>(std::max<std::int64_t>(1, map.columns));
  draw_cells(svg, map, colors, area, cell);
  svg.rectangle(area, "frame");
  label_rows(svg, map, area, cell);
  label_columns(svg, map, area, cell);
}

// A vertical bar with the values of its ends and some between them.
void draw_color_bar(Svg& svg, const ColorScale& colors, double x, double y, double height) {
  const Rectangle area{x, y, color_bar_width, std::min(200.0, height)};
  const AxisScale scale(Extent(Scale::linear, {colors.low(), colors.high()}), area.bottom(), area.y);
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

struct Layout {
  std::vector<Rectangle> areas;  // of the charts, from the upper left corner of the first panel; titles are above
  double width = 0, height = 0;
};

Layout lay_out(const Figure& figure) {
  const auto count = figure.panels.size();
  const auto columns =
      std::min(static_cast<std::size_t>(std::max<std::int64_t>(1, figure.columns)), std::max<std::size_t>(1, count));
  const double panel_width = columns == 1 ? 560 : columns == 2 ? 330 : columns == 3 ? 230 : 150;
  std::vector<Room> rooms;
  std::vector<double> widths(columns), heights((count + columns - 1) / columns);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& panel = figure.panels[i];
    auto& room =
        rooms.emplace_back(std::visit([&](const auto& chart) { return room_of(chart, panel_width); }, panel.chart));
    if (!panel.title.empty()) room.top += panel_title_height;
    if (std::holds_alternative<HeatMap>(panel.chart) && !figure.same_colors) room.right += color_bar_room + panel_gap;
    widths[i % columns] = std::max(widths[i % columns], room.left + room.width + room.right);
    heights[i / columns] = std::max(heights[i / columns], room.top + room.height + room.bottom);
  }
  const auto before = [](const std::vector<double>& sizes, std::size_t end) {
    double sum = 0;
    for (std::size_t i = 0; i < end; ++i) sum += sizes[i] + panel_gap;
    return sum;
  };
  Layout layout{.width = std::max(0.0, before(widths, columns) - panel_gap),
                .height = std::max(0.0, before(heights, heights.size()) - panel_gap)};
  for (std::size_t i = 0; i < count; ++i)
    layout.areas.push_back({before(widths, i % columns) + rooms[i].left, before(heights, i / columns) + rooms[i].top,
                            rooms[i].width, rooms[i].height});
  return layout;
}

class FigureWriter {
 public:
  explicit FigureWriter(const Figure& figure) : figure_(figure), layout_(lay_out(figure)) {
    for (const auto& panel : figure.panels)
      if (const auto* map = std::get_if<HeatMap>(&panel.chart)) maps_.push_back(map);
    constexpr double least_width = 280;
    width_ = std::max(least_width, layout_.width) + 2 * border + (shares_bar() ? color_bar_room + panel_gap : 0);
  }

  std::string write() {
    draw_heading();
    draw_legend();
    for (std::size_t i = 0; i < figure_.panels.size(); ++i) draw_panel(figure_.panels[i], layout_.areas[i]);
    if (shares_bar())
      draw_color_bar(svg_, ColorScale(maps_), width_ - border - color_bar_room, y_ + panel_title_height,
                     layout_.height - 2 * panel_title_height);
    const auto uses = [&](Palette palette) {
      return std::any_of(maps_.begin(), maps_.end(), [&](const auto* map) { return map->palette == palette; });
    };
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
        "aria-labelledby=\"title description\">\n<title id=\"title\">{2}</title>\n<desc id=\"description\">{3}</desc>\n"
        "<style>\n{4}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{5}</svg>\n",
        number(std::ceil(width_)), number(std::ceil(y_ + layout_.height + border)), escape(figure_.title),
        escape(figure_.description), style_sheet(uses(Palette::sequential), uses(Palette::diverging)), svg_.content());
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

  // Every name of a curve once.
  void draw_legend() {
    constexpr double swatch = 22, entry_gap = 16;
    std::set<std::string> names = {""};
    double x = border;
    for (const auto& panel : figure_.panels) {
      const auto* chart = std::get_if<LineChart>(&panel.chart);
      for (std::size_t i = 0; chart != nullptr && i < chart->curves.size(); ++i) {
        const auto& curve = chart->curves[i];
        if (!names.insert(curve.name).second) continue;
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

  void draw_panel(const Panel& panel, Rectangle area) {
    area.x += border;
    area.y += y_;
    svg_.open_group("panel", panel.title);
    if (!panel.title.empty())
      svg_.text(area.x, area.y - panel_title_height / 2 - 2, panel.title, {.css_class = "name"});
    if (const auto* map = std::get_if<HeatMap>(&panel.chart)) {
      const ColorScale colors(figure_.same_colors ? maps_ : std::vector{map});
      draw(svg_, *map, colors, area);
      if (!figure_.same_colors) draw_color_bar(svg_, colors, area.right() + panel_gap, area.y, area.height);
    } else if (const auto* intervals = std::get_if<IntervalChart>(&panel.chart)) {
      draw(svg_, *intervals, area);
    } else {
      draw(svg_, std::get<LineChart>(panel.chart), area);
    }
    svg_.close_group();
  }

  const Figure& figure_;
  Layout layout_;
  std::vector<const HeatMap*> maps_;
  Svg svg_;
  double width_ = 0, y_ = border;
};

std::string file_name(std::string name) {
  constexpr std::string_view others = ".-_";
  for (auto& letter : name) {
    const bool kept = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                      (letter >= '0' && letter <= '9') || others.find(letter) != others.npos;
    if (!kept) letter = '_';
  }
  constexpr std::size_t most = 120, end = 50;  // a file system takes 255 bytes
  if (name.size() > most) name = name.substr(0, most - end) + ".." + name.substr(name.size() - end);
  return name;
}

}  // namespace

std::string to_svg(const Figure& figure) {
  check(figure);
  return FigureWriter(figure).write();
}

FigureFolder::FigureFolder(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw Error(ExitCode::failure, fmt::format("{}: {}", folder_.string(), error.message()));
}

void FigureFolder::write(const std::string& name, const Figure& figure) {
  auto stem = file_name(name);
  for (int copy = 2; !names_.insert(stem).second; ++copy) stem = fmt::format("{}-{}", file_name(name), copy);
  const auto svg = folder_ / (stem + ".svg"), pdf = folder_ / (stem + ".pdf");
  write_file_atomically(svg, to_svg(figure));
  ++written_;
  if (!with_pdf_) return;
  with_pdf_ =
      run_program({"rsvg-convert", "--format=pdf", "--output=" + pdf.string(), std::filesystem::absolute(svg).string()},
                  fmt::format("{}: cannot be converted to PDF", svg.string()))
          .has_value();
  if (!with_pdf_)
    log::warning("{}: figures are written as SVG only, since rsvg-convert is not installed (Debian: librsvg2-bin)",
                 folder_.string());
}

}  // namespace metaformer::figures
