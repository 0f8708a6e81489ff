#pragma once
// Axes with ticks, grid lines and labels.

#include "figures/scale.h"
#include "figures/svg.h"

namespace metaformer::figures {

void draw_x_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area);
void draw_y_axis(Svg& svg, const AxisScale& scale, const std::string& label, const Rectangle& area);

}  // namespace metaformer::figures
