#pragma once
// The colours of figures: 8 for curves, and levels of two palettes for values.

#include <string>

#include "figures/chart_types.h"

namespace metaformer::figures {

constexpr int curve_colors = 8, sequential_levels = 32, diverging_levels = 33;  // the middle one is zero

// Values to levels. sequential: from low to high; diverging: symmetric about 0.
class ColorScale {
 public:
  // The range of the map's own values where it does not give the ends.
  explicit ColorScale(const HeatMap& map);
  // Of all maps together, which must have one palette.
  explicit ColorScale(const std::vector<const HeatMap*>& maps);

  int level(double value) const;
  std::string css_class(int level) const;
  int levels() const;
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  Palette palette_;
  double low_ = 0, high_ = 1;
};

// The same colours as CSS variables of :root, for pages: --curve-0 ... --curve-7, --sequential-0 ... --sequential-4
// (low to high) and --diverging-0 ... --diverging-4.
std::string palette_variables();

// CSS for all classes that figures use: light colours, and dark ones where the reader prefers those.
std::string style_sheet(bool with_sequential, bool with_diverging);

}  // namespace metaformer::figures
