#pragma once
// The three kinds of chart: how much room the text around them needs, and drawing them into a rectangle.

#include "report/svg.h"

namespace metaformer::figures {

struct Margins {
  double left = 0, top = 0, right = 0, bottom = 0;
};

Margins margins_of(const LineChart& chart);
Margins margins_of(const IntervalChart& chart);
Margins margins_of(const HeatMap& map, double cell);

void draw(Svg& svg, const LineChart& chart, const Rectangle& area);
void draw(Svg& svg, const IntervalChart& chart, const Rectangle& area);
void draw(Svg& svg, const HeatMap& map, const ColorScale& colors, const Rectangle& area);

// A vertical bar with the values of its ends and some between them.
void draw_color_bar(Svg& svg, const ColorScale& colors, const Rectangle& area);
constexpr double color_bar_width = 12, color_bar_room = 62;  // with its numbers

// The name of a curve's colour in CSS classes, and whether it is dashed: from the ninth curve on colours repeat,
// dashed.
int color_of(const Curve& curve, std::size_t position);
bool is_dashed(const Curve& curve, std::size_t position);

}  // namespace metaformer::figures
