#include "data/statistics/pair_stats.h"

#include <algorithm>

namespace metaformer {

using Json = nlohmann::ordered_json;

static Json side_stats(const PairDataset& pairs, Split split, std::vector<std::int32_t> EncodedPair::*side) {
  std::size_t sum = 0, longest = 0;
  for (std::int64_t i = 0; i < pairs.count(split); ++i) {
    const auto tokens = (pairs.pair(split, i).*side).size();
    sum += tokens;
    longest = std::max(longest, tokens);
  }
  return {{"mean_tokens", static_cast<double>(sum) / static_cast<double>(pairs.count(split))},
          {"most_tokens", longest}};
}

Json pair_stats(const PairDataset& pairs) {
  Json stats;
  for (const auto split : every_split) {
    if (pairs.count(split) == 0) continue;
    auto& of_split = stats["splits"][std::string(to_string(split))];
    of_split["pairs"] = pairs.count(split);
    of_split["source"] = side_stats(pairs, split, &EncodedPair::source);
    of_split["target"] = side_stats(pairs, split, &EncodedPair::target);
  }
  stats["vocabulary"] = pairs.codec().tokenizer->vocabulary_size();
  return stats;
}

}  // namespace metaformer
