#pragma once
// Figures as SVG: one chart, or many in a grid. The same input gives the same bytes.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "figures/chart_types.h"

namespace metaformer::figures {

struct Panel {
  std::string title;
  std::variant<LineChart, IntervalChart, HeatMap> chart;
};

struct Figure {
  std::string title;
  std::string description;    // for readers who cannot see it, and the line below the title
  std::vector<Panel> panels;  // row by row
  std::int64_t columns = 1;   // panels in a row
  double panel_width = 0;     // in pixels, axes not counted; 0: chosen by the chart and the number of columns
  double panel_height = 0;    // the same; a heat map has square cells and takes the smaller of both
  bool same_colors = false;   // heat maps share one colour scale, drawn once
};

// A complete SVG file. It follows the reader's choice of light or dark colours. Throws Error (exit code 2) when lengths
// of one curve or map differ.
std::string to_svg(const Figure& figure);

}  // namespace metaformer::figures
