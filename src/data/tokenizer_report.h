#pragma once
// What a tokenizer makes of the texts of a config.

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "data/token_rows.h"
#include "text/tokenizer.h"

namespace metaformer {

struct TokenizedSplit {
  std::int64_t texts = 0, characters = 0, tokens = 0, unknown_tokens = 0;
};

struct TokenizerReport {
  std::shared_ptr<Tokenizer> tokenizer;
  std::string kind;
  std::array<TokenizedSplit, 2> splits;          // train and validation, by Split
  std::array<double, 2> megabytes_per_second{};  // first and second pass over the training texts, one thread
  std::vector<std::string> longest_tokens;       // ten, by characters

  const TokenizedSplit& operator[](Split split) const { return splits[static_cast<std::size_t>(split)]; }
};

// Makes the tokenizer of a config, as training would, and encodes the training and validation texts. Errors: exit codes
// 2 (the task has no texts) and 3.
TokenizerReport report_tokenizer(const ExperimentConfig& config, bool offline);

nlohmann::ordered_json to_json(const TokenizerReport& report);

// What a model's size depends on; nothing: it is not known.
struct DataCounts {
  std::optional<std::int64_t> vocabulary, classes;
};

// Of a config's data, if they are on this machine, readable and valid. Subwords are learned only from texts of up to a
// MiB, for which that takes seconds, or are taken from the cache.
DataCounts count_data(const ExperimentConfig& config);

}  // namespace metaformer
