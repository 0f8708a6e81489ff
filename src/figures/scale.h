#pragma once
// From values to pixels, and where an axis has its ticks.

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "figures/chart_types.h"

namespace metaformer::figures {

struct Tick {
  double value = 0;
  std::string text;  // "": a mark only
};

// The smallest and largest of what was added; values that the scale cannot show are ignored.
class Extent {
 public:
  Extent() = default;
  explicit Extent(Scale scale) : scale_(scale) {}
  void add(double value);
  void add(const std::vector<double>& values);
  void widen(double fraction);  // on both sides, by a fraction of the distance between them
  double low() const { return low_; }
  double high() const { return high_; }
  bool empty() const { return low_ > high_; }

 private:
  Scale scale_ = Scale::linear;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -std::numeric_limits<double>::infinity();
};

class AxisScale {
 public:
  // Shows the axis's own range, or that of the data. Without data: 0 to 1, or 1 to 10.
  AxisScale(const Axis& axis, const Extent& data, double first_pixel, double last_pixel);

  // Whether the value has a place: finite, and positive on a logarithmic axis.
  bool shows(double value) const;
  double operator()(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }

  // About so many, at round values: 1, 2, 2.5, 5 times powers of ten.
  std::vector<Tick> ticks(int wanted) const;

 private:
  Scale scale_;
  double low_ = 0, high_ = 1, first_pixel_, last_pixel_;
};

// A number as people write it: as many decimals as the step between ticks needs, thousands with commas, far from 1 as
// 1e-5.
std::string tick_text(double value, double step);

}  // namespace metaformer::figures
