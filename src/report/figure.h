#pragma once
// Figures of charts, and their files.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "report/svg.h"

// Figures as SVG: one chart, or many in a grid. The same input gives the same bytes.

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

// Figures as files for papers.

namespace metaformer::figures {

// Writes figures into a folder, which is created: NAME.svg and, with rsvg-convert of librsvg, NAME.pdf. Without that
// program there is one warning, and no PDF. Errors: exit code 1 when a file cannot be written.
class FigureFolder {
 public:
  explicit FigureFolder(std::filesystem::path folder);

  // Of `name` only letters, digits, '.', '-' and '_' stay; the others become '_'. A name that was there gets a number.
  void write(const std::string& name, const Figure& figure);

  int written() const { return written_; }

 private:
  std::filesystem::path folder_;
  std::set<std::string> names_;
  bool with_pdf_ = true;
  int written_ = 0;
};

}  // namespace metaformer::figures
