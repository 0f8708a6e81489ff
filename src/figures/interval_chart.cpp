#include <algorithm>

#include "figures/axes.h"
#include "figures/charts.h"

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
