#pragma once
// The report page, and its numbers and matrices.

#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace metaformer {

// Matrices of a page, small enough for many heads.

// {"rows", "columns", "low", "high", "bits", "layout", "data"}: values as whole numbers from 0 (low) to 2^bits - 1
// (high), little-endian, base64. bits: 16, an error of at most (high - low) / 131070, or 8 for more than 96 x 96 cells.
// layout: "full"; "lower", the lower triangle with the diagonal, for what a causal mask leaves; "symmetric", the same
// for a matrix that equals its transpose. Null for a matrix that is undefined or not finite.
nlohmann::ordered_json pack(const torch::Tensor& matrix_ij, bool causal = false);

// Numbers of a page with no more digits than it shows.

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

// The report as one HTML file that loads nothing else.

// `data`: what the scripts in report/page read. Text in it may be any: markup in it stays text.
std::string make_page(const std::string& title, const nlohmann::ordered_json& data);

}  // namespace metaformer
