#include "data/statistics/length_stats.h"

#include <algorithm>
#include <numeric>

namespace metaformer {

LengthStats measure_lengths(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  const auto percentile = [&](std::size_t percent) {
    const auto rank = (lengths.size() * percent + 99) / 100;  // rounded up, counted from 1
    return lengths[rank - 1];
  };
  const auto sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return {.mean = static_cast<double>(sum) / static_cast<double>(lengths.size()),
          .median = percentile(50),
          .percentile_90 = percentile(90),
          .percentile_95 = percentile(95),
          .percentile_99 = percentile(99),
          .longest = lengths.back()};
}

nlohmann::ordered_json to_json(const LengthStats& lengths) {
  return {{"mean", lengths.mean},         {"median", lengths.median},     {"p90", lengths.percentile_90},
          {"p95", lengths.percentile_95}, {"p99", lengths.percentile_99}, {"longest", lengths.longest}};
}

}  // namespace metaformer
