#include "text/ngram_features.h"

#include <algorithm>

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

}  // namespace metaformer
