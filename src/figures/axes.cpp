#include "figures/axes.h"

#include <algorithm>

namespace metaformer::figures {

namespace {

constexpr double pixels_per_x_tick = 70, pixels_per_y_tick = 40, tick_gap = 5;

}  // namespace

void draw_x_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area) {
  for (const auto& tick : scale.ticks(static_cast<int>(area.width / pixels_per_x_tick))) {
    const double x = scale(tick.value);
    svg.line(x, area.y, x, area.bottom(), "grid");
    if (!tick.text.empty()) svg.text(x, area.bottom() + tick_gap + line_height / 2, tick.text, {Anchor::middle});
  }
  svg.line(area.x, area.bottom(), area.right(), area.bottom(), "axis");
  if (!label.empty())
    svg.text(area.x + area.width / 2, area.bottom() + tick_gap + 1.6 * line_height, label, {Anchor::middle});
}

void draw_y_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area) {
  double widest = 0;
  for (const auto& tick : scale.ticks(static_cast<int>(area.height / pixels_per_y_tick))) {
    const double y = scale(tick.value);
    svg.line(area.x, y, area.right(), y, "grid");
    svg.text(area.x - tick_gap, y, tick.text, {Anchor::end});
    widest = std::max(widest, text_width(tick.text, font_size));
  }
  if (!label.empty())
    svg.text(area.x - 2 * tick_gap - widest - line_height / 2, area.y + area.height / 2, label,
             {.anchor = Anchor::middle, .rotation = -90});
}

}  // namespace metaformer::figures
