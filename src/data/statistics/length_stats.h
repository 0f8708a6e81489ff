#pragma once
// How long texts are.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace metaformer {

// Percentiles by nearest rank: the smallest value that so many percent of all do not exceed.
struct LengthStats {
  double mean = 0;
  std::int64_t median = 0, percentile_90 = 0, percentile_95 = 0, percentile_99 = 0, longest = 0;
};

// Of no lengths all is 0.
LengthStats measure_lengths(std::vector<std::int64_t> lengths);

nlohmann::ordered_json to_json(const LengthStats& lengths);

}  // namespace metaformer
