#pragma once
// What labelled texts are like, before anything is trained on them.

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "data/labelled_splits.h"
#include "data/packing/pack_plan.h"
#include "data/statistics/length_stats.h"

namespace metaformer {

struct SplitStats {
  std::int64_t texts = 0;
  std::vector<std::int64_t> class_counts;  // by class id
  LengthStats tokens;                      // of a text, before it is cut off
  std::int64_t all_tokens = 0, unknown_tokens = 0;
  std::int64_t cut = 0;     // texts longer than model.context
  std::int64_t copies = 0;  // texts that stand in the split before, byte for byte
};

struct LabelledStats {
  std::vector<std::string> labels;  // by class id
  std::int64_t vocabulary = 0;
  bool has_unknown = false;          // whether the tokenizer has an unknown token
  std::array<SplitStats, 3> splits;  // by Split
  // Texts of one split, copies counted, that stand in another too.
  std::int64_t validation_in_train = 0, test_in_train = 0, test_in_validation = 0;
  // Share of the tokens of an epoch's training batches that is padding: each batch of texts as they come, and with
  // task.bucketing. Texts are as long as they are: nothing is taken out of them (task.token_removal).
  double padding_unsorted = 0, padding_bucketed = 0;
  std::optional<PackStats> packs;  // of the training texts, with data.packing
  nlohmann::ordered_json sources;  // as LabelledSplits describes them: files, malformed rows, ratings left out

  const SplitStats& operator[](Split split) const { return splits[static_cast<std::size_t>(split)]; }
};

// Tokens are those of the tokenizer that training with this config would make. Errors: those of encode_splits.
LabelledStats measure_labelled_texts(LabelledSplits splits, const ExperimentConfig& config);

nlohmann::ordered_json to_json(const LabelledStats& stats);

}  // namespace metaformer
