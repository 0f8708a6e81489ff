#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "report/svg.h"

namespace metaformer::figures {

namespace {

constexpr double smallest_labelled_cell = 9, longest_label = 70, gap = 4;

bool has_labels(const std::vector<std::string>& labels, double cell) {
  return !labels.empty() && cell >= smallest_labelled_cell;
}

double widest(const std::vector<std::string>& labels) {
  double width = 0;
  for (const auto& label : labels) width = std::max(width, text_width(label, font_size));
  return std::min(width, longest_label);
}

// Names of one character stand upright, longer ones are turned.
bool turned(const std::vector<std::string>& labels, double cell) { return widest(labels) > cell; }

// The numbers that are written at an axis without labels: 0 and multiples of a round step.
std::vector<Tick> positions(std::int64_t count, double cell) {
  constexpr double pixels_per_number = 42;
  const Axis axis{.label = "", .range = std::pair(0.0, static_cast<double>(std::max<std::int64_t>(1, count - 1)))};
  auto ticks =
      AxisScale(axis, Extent(), 0, 1).ticks(static_cast<int>(static_cast<double>(count) * cell / pixels_per_number));
  std::erase_if(ticks, [](const Tick& tick) { return tick.value != std::floor(tick.value); });
  for (auto& tick : ticks) tick.text = tick_text(tick.value, 1);
  return ticks;
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

void label_rows(Svg& svg, const HeatMap& map, const Rectangle& area, double cell) {
  double used = 0;
  const auto middle = [&](double row) { return area.y + (row + 0.5) * cell; };
  if (has_labels(map.row_labels, cell)) {
    used = widest(map.row_labels);
    for (std::size_t i = 0; i < map.row_labels.size(); ++i)
      svg.text(area.x - gap, middle(static_cast<double>(i)), shorten(map.row_labels[i], longest_label, font_size),
               {Anchor::end});
  } else {
    for (const auto& tick : positions(map.rows, cell)) {
      svg.text(area.x - gap, middle(tick.value), tick.text, {Anchor::end});
      used = std::max(used, text_width(tick.text, font_size));
    }
  }
  if (!map.row_title.empty())
    svg.text(area.x - 2 * gap - used - line_height / 2, area.y + area.height / 2, map.row_title,
             {.anchor = Anchor::middle, .rotation = -90});
}

void label_columns(Svg& svg, const HeatMap& map, const Rectangle& area, double cell) {
  double used = line_height;
  const auto middle = [&](double column) { return area.x + (column + 0.5) * cell; };
  if (has_labels(map.column_labels, cell)) {
    const bool turn = turned(map.column_labels, cell);
    if (turn) used = widest(map.column_labels) + gap;
    for (std::size_t i = 0; i < map.column_labels.size(); ++i)
      svg.text(middle(static_cast<double>(i)), area.bottom() + (turn ? gap : line_height / 2 + 1),
               shorten(map.column_labels[i], longest_label, font_size),
               {.anchor = turn ? Anchor::end : Anchor::middle, .rotation = turn ? -90.0 : 0.0});
  } else {
    for (const auto& tick : positions(map.columns, cell))
      svg.text(middle(tick.value), area.bottom() + line_height / 2 + 1, tick.text, {Anchor::middle});
  }
  if (!map.column_title.empty())
    svg.text(area.x + area.width / 2, area.bottom() + used + line_height / 2 + 1, map.column_title, {Anchor::middle});
}

}  // namespace

Margins margins_of(const HeatMap& map, double cell) {
  constexpr double number_width = 22;
  Margins margins{.left = 2 * gap, .top = 4, .right = 4, .bottom = gap};
  margins.left += has_labels(map.row_labels, cell) ? widest(map.row_labels) : number_width;
  if (!map.row_title.empty()) margins.left += line_height;
  const bool turn = has_labels(map.column_labels, cell) && turned(map.column_labels, cell);
  margins.bottom += turn ? widest(map.column_labels) + gap : line_height;
  if (!map.column_title.empty()) margins.bottom += line_height;
  return margins;
}

void draw(Svg& svg, const HeatMap& map, const ColorScale& colors, const Rectangle& area) {
  const double cell = area.width / static_cast<double>(std::max<std::int64_t>(1, map.columns));
  draw_cells(svg, map, colors, area, cell);
  svg.rectangle(area, "frame");
  label_rows(svg, map, area, cell);
  label_columns(svg, map, area, cell);
}

void draw_color_bar(Svg& svg, const ColorScale& colors, const Rectangle& area) {
  const AxisScale scale({.label = "", .range = std::pair(colors.low(), colors.high())}, Extent(), area.bottom(),
                        area.y);
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

}  // namespace metaformer::figures

namespace metaformer::figures {

namespace {

struct Scales {
  AxisScale x, y;
};

Scales scales_of(const LineChart& chart, const Rectangle& area) {
  Extent x(chart.x.scale), y(chart.y.scale);
  for (const auto& curve : chart.curves) {
    x.add(curve.x);
    for (const auto* values : {&curve.y, &curve.low, &curve.high}) y.add(*values);
  }
  y.widen(0.03);
  return {AxisScale(chart.x, x, area.x, area.right()), AxisScale(chart.y, y, area.bottom(), area.y)};
}

// A path through the points that can be shown; a gap starts it anew.
std::string path_through(const std::vector<double>& x, const std::vector<double>& y, const Scales& scales) {
  std::string commands;
  bool drawing = false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool shown = scales.x.shows(x[i]) && scales.y.shows(y[i]);
    if (shown) commands += fmt::format("{}{} {}", drawing ? 'L' : 'M', number(scales.x(x[i])), number(scales.y(y[i])));
    drawing = shown;
  }
  return commands;
}

// Closed areas between low and high, one for each stretch without a gap.
std::string band_of(const Curve& curve, const Scales& scales) {
  std::string commands;
  const auto shown = [&](std::size_t i) {
    return scales.x.shows(curve.x[i]) && scales.y.shows(curve.low[i]) && scales.y.shows(curve.high[i]);
  };
  const auto point = [&](std::size_t i, double y) {
    return fmt::format("{} {}", number(scales.x(curve.x[i])), number(scales.y(y)));
  };
  for (std::size_t start = 0, end = 0; start < curve.low.size(); start = end + 1) {
    for (end = start; end < curve.low.size() && shown(end);) ++end;
    if (end == start) continue;
    for (std::size_t i = start; i < end; ++i) commands += (i == start ? 'M' : 'L') + point(i, curve.high[i]);
    for (std::size_t i = end; i-- > start;) commands += 'L' + point(i, curve.low[i]);
    commands += 'Z';
  }
  return commands;
}

}  // namespace

int color_of(const Curve& curve, std::size_t position) {
  return curve.color >= 0 ? curve.color % curve_colors : static_cast<int>(position % curve_colors);
}

bool is_dashed(const Curve& curve, std::size_t position) {
  const auto number = curve.color >= 0 ? static_cast<std::size_t>(curve.color) : position;
  return curve.dashed || number / curve_colors % 2 == 1;
}

Margins margins_of(const LineChart&) { return {.left = 62, .top = 8, .right = 20, .bottom = 36}; }

void draw(Svg& svg, const LineChart& chart, const Rectangle& area) {
  const auto scales = scales_of(chart, area);
  draw_x_axis(svg, scales.x, chart.x.label, area);
  draw_y_axis(svg, scales.y, chart.y.label, area);
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    if (const auto band = band_of(chart.curves[i], scales); !band.empty())
      svg.path(band, fmt::format("band b{}", color_of(chart.curves[i], i)));
  }
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const auto& curve = chart.curves[i];
    const int color = color_of(curve, i);
    if (const auto path = path_through(curve.x, curve.y, scales); !path.empty())
      svg.path(path, fmt::format("line c{}{}", color, is_dashed(curve, i) ? " dashed" : ""));
    if (curve.x.size() == 1 && scales.x.shows(curve.x[0]) && scales.y.shows(curve.y[0]))
      svg.circle(scales.x(curve.x[0]), scales.y(curve.y[0]), 3, fmt::format("p{}", color));
  }
}

}  // namespace metaformer::figures

namespace metaformer::figures {

namespace {

constexpr double longest_name = 260, name_gap = 10;

}  // namespace

Margins margins_of(const IntervalChart& chart) {
  double widest = 40;
  for (const auto& row : chart.rows) widest = std::max(widest, text_width(row.name, font_size));
  return {.left = std::min(widest, longest_name) + name_gap, .top = 8, .right = 20, .bottom = 36};
}

void draw(Svg& svg, const IntervalChart& chart, const Rectangle& area) {
  Extent values(chart.x.scale);
  if (chart.reference) values.add(*chart.reference);
  for (const auto& row : chart.rows) {
    values.add(row.points);
    for (const double value : {row.value, row.low, row.high}) values.add(value);
  }
  constexpr double inset = 8;  // dots at the ends stay inside
  const AxisScale scale(chart.x, values, area.x + inset, area.right() - inset);
  draw_x_axis(svg, scale, chart.x.label, area);
  if (chart.reference && scale.shows(*chart.reference))
    svg.line(scale(*chart.reference), area.y, scale(*chart.reference), area.bottom(), "mark");
  const double step = area.height / static_cast<double>(std::max<std::size_t>(1, chart.rows.size()));
  for (std::size_t i = 0; i < chart.rows.size(); ++i) {
    const auto& row = chart.rows[i];
    const double y = area.y + (static_cast<double>(i) + 0.5) * step;
    svg.text(area.x - name_gap, y, shorten(row.name, longest_name, font_size), {Anchor::end});
    if (row.low < row.high && scale.shows(row.low) && scale.shows(row.high))
      svg.line(scale(row.low), y, scale(row.high), y, "interval c0");
    for (const double point : row.points)
      if (scale.shows(point)) svg.circle(scale(point), y, 2.5, "p1 dot");
    if (scale.shows(row.value)) svg.circle(scale(row.value), y, 4, "p0");
  }
}

}  // namespace metaformer::figures
