#include "text/ngram_features.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace metaformer {

std::vector<std::uint32_t> ngram_features(std::span<const std::int32_t> ids, const LinearConfig& config) {
  const auto longest = static_cast<std::size_t>(config.ngrams);
  const auto buckets = static_cast<unsigned __int128>(config.buckets);
  std::vector<std::uint32_t> features;
  features.reserve(ids.size() * longest);
  for (std::size_t first = 0; first < ids.size(); ++first) {
    std::uint64_t hash = 0;
    for (std::size_t i = first; i < std::min(first + longest, ids.size()); ++i) {
      hash = Rng::mix(hash ^ Rng::mix(static_cast<std::uint64_t>(ids[i])));
      features.push_back(static_cast<std::uint32_t>((hash * buckets) >> 64));
    }
  }
  std::sort(features.begin(), features.end());
  features.erase(std::unique(features.begin(), features.end()), features.end());
  return features;
}

std::vector<double> log_count_ratios(const std::vector<LabelledFeatures>& texts, std::int64_t label, std::size_t size) {
  std::vector<double> members(size), others(size);
  for (const auto& text : texts)
    for (const auto feature : text.features) ++(text.label == label ? members : others)[feature];
  double member_sum = 0, other_sum = 0;
  const auto is_seen = [&](std::size_t feature) { return members[feature] + others[feature] > 0; };
  for (std::size_t feature = 0; feature < size; ++feature) {
    if (!is_seen(feature)) continue;
    member_sum += members[feature] + log_count_smoothing;
    other_sum += others[feature] + log_count_smoothing;
  }
  std::vector<double> ratios(size);
  for (std::size_t feature = 0; feature < size; ++feature)
    if (is_seen(feature))
      ratios[feature] = std::log((members[feature] + log_count_smoothing) / member_sum) -
                        std::log((others[feature] + log_count_smoothing) / other_sum);
  return ratios;
}

}  // namespace metaformer
