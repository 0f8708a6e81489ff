#pragma once
// What a text is like for a language model.

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/experiment_config.h"
#include "data/packing/pack_plan.h"
#include "data/sources/corpus.h"
#include "data/token_rows.h"

namespace metaformer {

struct TextSplitStats {
  std::int64_t characters = 0, tokens = 0, unknown_tokens = 0;
  std::optional<std::int64_t> unknown_characters;  // nothing where white space is dropped
  double unigram_entropy = 0;                      // of the tokens, in nats
};

struct TextStats {
  std::string task;  // its kind
  std::string path;
  nlohmann::ordered_json source;  // as Corpus describes it
  std::int64_t vocabulary = 0;
  bool has_unknown = false;              // whether the tokenizer has an unknown token
  std::array<TextSplitStats, 2> splits;  // train and validation, by Split

  std::optional<PackStats> packs;  // of the training documents and their pieces, with data.packing

  const TextSplitStats& operator[](Split split) const { return splits[static_cast<std::size_t>(split)]; }
};

// Tokens are those of the tokenizer that training with this config would make. Errors (exit code 3): not UTF-8, a split
// without two tokens.
TextStats measure_text(const Corpus& corpus, const ExperimentConfig& config);

nlohmann::ordered_json to_json(const TextStats& stats);

}  // namespace metaformer
