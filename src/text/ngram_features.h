#pragma once
// Texts as sets of hashed n-grams, for the linear classifier.

#include <cstdint>
#include <span>
#include <vector>

#include "config/model_config.h"

namespace metaformer {

// The features of a text: the distinct buckets to which its 1- to n-grams of token ids are hashed, ascending. Whether a
// text has an n-gram counts, not how often. The function must not change: trained weights depend on it.
std::vector<std::uint32_t> ngram_features(std::span<const std::int32_t> ids, const LinearConfig& config);

}  // namespace metaformer
