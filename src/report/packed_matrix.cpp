#include "report/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "text/base64.h"

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

}  // namespace metaformer
