#pragma once
// Pairs of texts that are already split: the result of every source of them.

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/token_rows.h"

namespace metaformer {

struct TextPair {
  std::string source;
  std::string target;
  std::string source_place, target_place;  // for messages: "train.de:17", "train.en:17"
};

struct PairSplits {
  std::array<std::vector<TextPair>, 3> pairs;  // by Split; no test pairs if the config names none
  nlohmann::ordered_json description;          // for environment.json: paths, digests and numbers of pairs by split

  std::vector<TextPair>& operator[](Split split) { return pairs[static_cast<std::size_t>(split)]; }
  const std::vector<TextPair>& operator[](Split split) const { return pairs[static_cast<std::size_t>(split)]; }
};

}  // namespace metaformer
