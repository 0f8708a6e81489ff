#pragma once
// The embeddings of tokens, and how a model knows where a token stands.

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

enum class EmbeddingScale { none, log_count_ratio };
template <>
struct EnumNames<EmbeddingScale> {
  static constexpr std::array<std::string_view, 2> values = {"none", "log_count_ratio"};
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

struct EmbeddingConfig {
  double std = 0.02;
  double dropout = 0.0;
  EmbeddingScale scale = EmbeddingScale::none;
  NgramEmbeddingConfig ngrams;
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
        "classification: log_count_ratio multiplies the embeddings of tokens and n-grams by how unequally the classes' "
        "training texts have them");
  field("ngrams", c.ngrams, "classification: hashed n-grams beside the tokens");
  field("tie", c.tie, "not for classification: the output layer shares the token embedding's matrix");
}

struct LearnedPositionsConfig {
  static constexpr std::string_view kind = "learned";
  static constexpr std::string_view summary = "a learned vector for every position, added to the token's embedding";
};

struct NoPositionsConfig {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "nothing: only the mixer's mask and window depend on positions";
};

using PositionsConfig = std::variant<LearnedPositionsConfig, NoPositionsConfig>;

template <class Visitor>
void visit(Visitor&, LearnedPositionsConfig&) {}

template <class Visitor>
void visit(Visitor&, NoPositionsConfig&) {}

}  // namespace metaformer
