#pragma once
// What pairs of texts are like, before anything is trained on them.

#include <array>
#include <nlohmann/json.hpp>

#include "config/experiment_config.h"
#include "data/datasets/pair_dataset.h"
#include "data/statistics/length_stats.h"

namespace metaformer {

struct SideStats {
  LengthStats tokens;  // of a text, before it is cut off, without a mark
  std::int64_t all_tokens = 0, unknown_tokens = 0;
  std::int64_t cut = 0;  // texts that do not fit model.context with their mark
};

struct PairSplitStats {
  std::int64_t pairs = 0;
  SideStats source, target;
  std::int64_t copies = 0;  // pairs that stand in the split before, token by token
};

struct PairStats {
  std::int64_t vocabulary = 0;
  bool has_unknown = false;              // whether the tokenizer has an unknown token
  std::array<PairSplitStats, 3> splits;  // by Split

  // Sources of one split, copies counted, that stand in another too.
  std::int64_t validation_in_train = 0, test_in_train = 0, test_in_validation = 0;
  double padding = 0;              // share of the tokens of both sides in an epoch's training batches
  nlohmann::ordered_json sources;  // as PairDataset describes its files

  const PairSplitStats& operator[](Split split) const { return splits[static_cast<std::size_t>(split)]; }
};

// Training pairs whose targets do not fit model.context are not counted: they are left out of training.
PairStats measure_pairs(const PairDataset& pairs, const ExperimentConfig& config);

nlohmann::ordered_json to_json(const PairStats& stats);

}  // namespace metaformer
