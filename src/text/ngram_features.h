#pragma once
// Texts as n-grams, for naive Bayes and the linear classifier.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "config/model_config.h"

namespace metaformer {

// The features of a text: the distinct buckets to which its 1- to n-grams of token ids are hashed, ascending. How often
// a text has an n-gram does not matter. The function must not change: trained weights depend on it.
std::vector<std::uint32_t> ngram_features(std::span<const std::int32_t> ids, const LinearConfig& config);

// Log-count ratios: how unequally a feature is distributed over two classes of texts (Wang and Manning 2012,
// "Baselines and bigrams").
struct LabelledFeatures {
  std::vector<std::uint32_t> features;  // distinct
  std::int64_t label = 0;
};

// Naive Bayes' log-count ratios of features 0 ... size - 1 between the texts of a class and all others, r in the paper:
// log of (texts of the class with the feature + s) over (texts of others with it + s), each normalised to sum to 1 over
// the features that any text has. 0 if no text has the feature. s is `log_count_smoothing`: 1 in the paper, here
// the value that cross-validation over films within IMDb's training half selected.
constexpr double log_count_smoothing = 3;
std::vector<double> log_count_ratios(const std::vector<LabelledFeatures>& texts, std::int64_t label, std::size_t size);

}  // namespace metaformer
