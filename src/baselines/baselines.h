#pragma once
// What a classifier must be compared with: always the most frequent class, and a linear model over n-grams.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

// Accuracies {"majority": {"validation": 0.5, "test": 0.5}, "linear": {...}}; without a test split there is no "test".
// majority: the most frequent class of the training texts. linear: baselines/linear_classifier.h over uni- and bigrams
// of all lower-case words and punctuation marks, trained on the same texts as the network, whatever its tokens are.
//
// Null where they do not apply: no classification, a linear model, train.baselines off, train.overfit_batch. Null with
// a warning where they cannot be computed. Kept in cache_folder()/baselines by what they follow from (`description` of
// the data, with its digests; data.*), unless data.cache is off; what is damaged there is computed anew. Throws
// Interrupted alone.
nlohmann::ordered_json find_baselines(const ExperimentConfig& config, const nlohmann::ordered_json& description,
                                      bool offline);

// Lines of a table of accuracies: the baselines, and below them this network's metrics by split ("validation", "test").
std::vector<std::string> compare_with_baselines(const nlohmann::ordered_json& baselines,
                                                const nlohmann::ordered_json& metrics_by_split);

}  // namespace metaformer
