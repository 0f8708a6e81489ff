#pragma once
// Labelled texts that are already split: the result of every source.

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/token_rows.h"

namespace metaformer {

struct LabelledText {
  std::string text;
  std::string label;
  std::string place;  // for messages: "reviews.csv:17"
};

struct LabelledSplits {
  std::array<std::vector<LabelledText>, 3> texts;  // by Split; no test texts if the config names none
  nlohmann::ordered_json description;              // paths and digests, for environment.json

  std::vector<LabelledText>& operator[](Split split) { return texts[static_cast<std::size_t>(split)]; }
  const std::vector<LabelledText>& operator[](Split split) const { return texts[static_cast<std::size_t>(split)]; }
};

}  // namespace metaformer
