#pragma once
// Counts the tokens of pairs of texts.

#include "data/datasets/pair_dataset.h"

namespace metaformer {

// By split that has pairs: their number, and the mean and the largest number of tokens of either side.
nlohmann::ordered_json pair_stats(const PairDataset& pairs);

}  // namespace metaformer
