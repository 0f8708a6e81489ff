#pragma once
// Numbers of a page with no more digits than it shows.

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

namespace metaformer {

// To so many significant digits; null where JSON has no such number.
inline nlohmann::ordered_json rounded(double value, int digits = 5) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

inline nlohmann::ordered_json rounded(const std::vector<double>& values, int digits = 5) {
  auto list = nlohmann::ordered_json::array();
  for (const double value : values) {
    auto number = rounded(value, digits);
    const bool whole = number.is_number() && std::abs(number.get<double>()) < 1e15 &&
                       std::trunc(number.get<double>()) == number.get<double>();
    list.push_back(whole ? nlohmann::ordered_json(static_cast<std::int64_t>(number.get<double>())) : std::move(number));
  }
  return list;
}

}  // namespace metaformer
