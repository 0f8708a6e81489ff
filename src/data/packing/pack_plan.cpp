#include "data/packing/pack_plan.h"

#include <numeric>

namespace metaformer {

std::int64_t PackPlan::packs() const {
  return std::accumulate(kinds.begin(), kinds.end(), std::int64_t{0},
                         [](std::int64_t sum, const PackKind& kind) { return sum + kind.count; });
}

PackPlan make_pack_plan(const LengthHistogram& histogram, const PackingConfig& config) {
  if (const auto* squares = std::get_if<LeastSquaresPackingConfig>(&config))
    return pack_by_least_squares(histogram, squares->depth);
  const auto* shortest = std::get_if<ShortestFirstPackingConfig>(&config);
  return pack_shortest_first(histogram, shortest == nullptr ? 1 : shortest->depth);
}

PackStats measure_packs(const LengthHistogram& histogram, const PackPlan& plan) {
  PackStats stats{.packs = plan.packs()};
  for (std::size_t length = 0; length < histogram.size(); ++length) {
    stats.sequences += histogram[length];
    stats.tokens += histogram[length] * static_cast<std::int64_t>(length);
  }
  if (stats.tokens == 0) return stats;
  const auto context = static_cast<double>(histogram.size() - 1);
  const auto sequences = static_cast<double>(stats.sequences), packs = static_cast<double>(stats.packs);
  stats.efficiency = static_cast<double>(stats.tokens) / (packs * context);
  stats.factor = sequences / packs;
  stats.speed_up_limit = sequences * context / static_cast<double>(stats.tokens);
  return stats;
}

nlohmann::ordered_json to_json(const PackStats& stats) {
  return {{"sequences", stats.sequences},   {"packs", stats.packs},   {"tokens", stats.tokens},
          {"efficiency", stats.efficiency}, {"factor", stats.factor}, {"speed_up_limit", stats.speed_up_limit}};
}

}  // namespace metaformer
