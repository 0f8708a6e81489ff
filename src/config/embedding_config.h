#pragma once
// The embeddings of tokens.

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

enum class EmbeddingScale { none, sqrt_width, log_count_ratio };
template <>
struct EnumNames<EmbeddingScale> {
  static constexpr std::array<std::string_view, 3> values = {"none", "sqrt_width", "log_count_ratio"};
};

// Embeddings of hashed n-grams of tokens, added to the token's own.
struct NgramEmbeddingConfig {
  std::int64_t order = 1;
  std::int64_t buckets = std::int64_t{1} << 18;
};

template <class Visitor>
void visit(Visitor& field, NgramEmbeddingConfig& c) {
  field("order", c.order, between(1, 5),
        "a token's embedding is joined by those of the 2-, ... order-grams ending there");
  field("buckets", c.buckets, between(1, 1 << 24), "rows of the table that n-grams are hashed to");
}

struct NoRegionConfig {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "a vector for each token";
};

// Johnson and Zhang 2015, "Effective use of word order for text categorization with convolutional neural networks".
struct SequenceRegionConfig {
  static constexpr std::string_view kind = "sequence";
  static constexpr std::string_view summary =
      "a vector for each region of tokens, the ReLU of a sum with a vector for the token at each place (one-hot "
      "convolution, Johnson and Zhang 2015)";
  std::int64_t shortest = 2;
  std::int64_t longest = 3;

  std::int64_t sizes() const { return longest - shortest + 1; }
  std::int64_t places() const { return (shortest + longest) * sizes() / 2; }  // of all sizes
};

using RegionConfig = std::variant<NoRegionConfig, SequenceRegionConfig>;

template <class Visitor>
void visit(Visitor&, NoRegionConfig&) {}

template <class Visitor>
void visit(Visitor& field, SequenceRegionConfig& c) {
  field("shortest", c.shortest, between(1, 16), "tokens of the smallest regions");
  field("longest", c.longest, between(1, 16),
        "tokens of the largest; each size has an equal part of the features of model.width");
}

struct EmbeddingConfig {
  double std = 0.02;
  double dropout = 0.0;
  EmbeddingScale scale = EmbeddingScale::none;
  NgramEmbeddingConfig ngrams;
  RegionConfig region;
  bool tie = true;
};

template <class Visitor>
void visit(Visitor& field, EmbeddingConfig& c) {
  field("std", c.std, positive,
        "standard deviation of the embeddings of tokens and n-grams at the start; the larger, the less a rare one "
        "learns");
  field("dropout", c.dropout, from_to_below(0, 1),
        "on features of the embeddings, the same ones at every token of a sequence");
  field("scale", c.scale,
        "factor of the embeddings: none; sqrt_width: the root of model.width (2017); log_count_ratio, only for "
        "classification: how unequally the training texts of the classes have the token or n-gram; default: "
        "sqrt_width where model.positions are sinusoidal, else none");
  field("ngrams", c.ngrams, "classification: hashed n-grams beside the tokens");
  field("region", c.region, "classification: what stands for a token, itself or the region of tokens that ends at it");
  field("tie", c.tie, "not for classification: the output layer shares the token embedding's matrix");
}

// nullptr: tokens have vectors of their own.
inline const SequenceRegionConfig* sequence_regions(const EmbeddingConfig& embedding) {
  return std::get_if<SequenceRegionConfig>(&embedding.region);
}

inline bool has_regions(const EmbeddingConfig& embedding) { return sequence_regions(embedding) != nullptr; }

}  // namespace metaformer
