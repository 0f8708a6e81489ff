#include "report/page.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/json.h"
#include "report/embedded_files.h"
#include "report/svg.h"

namespace metaformer {

nlohmann::ordered_json pack(const torch::Tensor& matrix_ij, bool causal) {
  if (!matrix_ij.defined() || matrix_ij.numel() == 0) return nullptr;
  const auto values = matrix_ij.to(torch::kCPU, torch::kDouble).contiguous();
  const auto rows = values.size(0), columns = values.size(1);
  const bool symmetric = !causal && rows == columns && values.equal(values.t());
  const auto* value = values.const_data_ptr<double>();
  const auto end_of = [&](std::int64_t row) { return causal || symmetric ? std::min(row + 1, columns) : columns; };
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < end_of(row); ++column) {
      const double number = value[row * columns + column];
      if (!std::isfinite(number)) return nullptr;
      low = std::min(low, number);
      high = std::max(high, number);
    }
  constexpr std::int64_t most_exact_cells = 96 * 96;
  const int bits = rows * columns <= most_exact_cells ? 16 : 8;
  const double levels = std::exp2(bits) - 1, unit = high > low ? levels / (high - low) : 0;
  std::string bytes;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < end_of(row); ++column) {
      const auto level = std::lround((value[row * columns + column] - low) * unit);
      bytes.push_back(static_cast<char>(level & 0xff));
      if (bits == 16) bytes.push_back(static_cast<char>(level >> 8));
    }
  return {{"rows", rows},
          {"columns", columns},
          {"low", low},
          {"high", high},
          {"bits", bits},
          {"layout", causal      ? "lower"
                     : symmetric ? "symmetric"
                                 : "full"},
          {"data", to_base64(bytes)}};
}

namespace {

// Only "<" could end the script element or start a comment in it. JSON has it only inside strings, where it can be
// escaped.
std::string script_safe(const std::string& json) {
  std::string result;
  result.reserve(json.size());
  for (const char letter : json) {
    if (letter == '<')
      result += "\\u003c";
    else
      result += letter;
  }
  return result;
}

// Puts values for @names@; text that was put in is not searched again.
std::string fill(std::string_view pattern, const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string result;
  while (!pattern.empty()) {
    const auto start = pattern.find('@');
    result += pattern.substr(0, start);
    if (start == pattern.npos) break;
    pattern.remove_prefix(start);
    bool found = false;
    for (const auto& [name, value] : values) {
      const auto mark = "@" + std::string(name) + "@";
      if (!pattern.starts_with(mark)) continue;
      result += value;
      pattern.remove_prefix(mark.size());
      found = true;
      break;
    }
    if (found) continue;
    result += '@';
    pattern.remove_prefix(1);
  }
  return result;
}

}  // namespace

std::string make_page(const std::string& title, const nlohmann::ordered_json& data) {
  const auto json = script_safe(json_text(data));
  const auto heading = figures::escape(title), palette = figures::palette_variables();
  return fill(embedded::html, {{"title", heading},
                               {"palette", palette},
                               {"style", embedded::style},
                               {"data", json},
                               {"d3_licence", embedded::d3_licence},
                               {"d3", embedded::d3},
                               {"script", embedded::script}});
}

}  // namespace metaformer
