#pragma once
// The accuracies that a network must beat: always the most frequent class, and a linear model over n-grams of words.

#include <array>
#include <nlohmann/json.hpp>

#include "config/data_config.h"
#include "config/model_config.h"
#include "config/tokenizer_options.h"

namespace metaformer {

// Cost, smoothing and joiners were chosen by cross-validation over films within IMDb's training half.
inline constexpr LinearConfig reference_linear_config = {
    .ngrams = 2, .buckets = std::int64_t{1} << 22, .naive_bayes = true, .cost = 0.2};
inline const WordTokenizerOptions reference_word_options = {
    .vocabulary = 1 << 20, .min_count = 1, .lowercase = true, .joiners = "'/"};

// {"majority": {"validation": 0.5, "test": 0.5}, "linear": {...}}; without a test split there is no "test". majority:
// the most frequent class of the training texts. linear: baselines/linear_classifier.h over uni- and bigrams of all
// lower-case words and punctuation marks, trained on the same texts as the network, whatever its tokens are. Errors: as
// load_labelled_splits; Interrupted.
nlohmann::ordered_json compute_reference_accuracies(const LabelledDataConfig& config, bool offline);

}  // namespace metaformer
