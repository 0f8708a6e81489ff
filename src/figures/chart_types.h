#pragma once
// What charts show: lines with bands, intervals, heat maps.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace metaformer::figures {

enum class Scale { linear, logarithmic };

struct Axis {
  std::string label;
  Scale scale = Scale::linear;
  std::optional<std::pair<double, double>> range = std::nullopt;  // default: that of the data
};

// One line. A point whose y is not finite, or not positive on a logarithmic axis, is a gap.
struct Curve {
  std::string name = "";                    // in the legend; "": not there
  std::vector<double> x = {}, y = {};       // of one length
  std::vector<double> low = {}, high = {};  // a band around the line, of the same length; empty: none
  int color = -1;                           // number in the palette of 8; -1: the position of the curve
  bool dashed = false;
};

struct LineChart {
  Axis x, y;
  std::vector<Curve> curves;
};

// Rows with a name, a value and its interval, from top to bottom.
struct Interval {
  std::string name;
  double value = 0;
  double low = 0, high = 0;         // equal to the value: no interval is drawn
  std::vector<double> points = {};  // small dots: the values that the row summarises
};

struct IntervalChart {
  Axis x;
  std::vector<Interval> rows;
  std::optional<double> reference = std::nullopt;  // a vertical line
};

// sequential: from 0 (or `HeatMap::lowest`) up, for probabilities and distances. diverging: symmetric about 0, for
// scores and weights.
enum class Palette { sequential, diverging };

struct HeatMap {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;  // [rows, columns]; NaN is left blank, as what a causal mask hides
  std::string row_title = "", column_title = "";
  std::vector<std::string> row_labels = {}, column_labels = {};  // empty: numbers are written
  Palette palette = Palette::sequential;
  std::optional<double> lowest = std::nullopt, highest = std::nullopt;  // ends of the colours; default: of the values
};

}  // namespace metaformer::figures
