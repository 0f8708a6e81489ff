#include "config/schema.h"

#include <fmt/format.h>

#include <cmath>

namespace metaformer {

bool Range::contains(double value) const {
  if (!(std::abs(value) <= largest_number)) return false;  // nor is NaN in it
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string Range::str() const {
  std::string text;
  if (std::isfinite(low)) text += fmt::format("{} {}", low_open ? "above" : "at least", low);
  if (std::isfinite(high))
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", high_open ? "below" : "at most", high);
  return text.empty() ? "finite" : text;
}

std::vector<std::string> Kinds::names() const {
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.push_back(kind.name);
  return names;
}

}  // namespace metaformer
