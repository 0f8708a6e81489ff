#include <fmt/format.h>

#include "figures/axes.h"
#include "figures/charts.h"

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
