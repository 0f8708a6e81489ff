#pragma once
// How a model knows where a token stands.

#include <cstdint>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

struct LearnedPositionsConfig {
  static constexpr std::string_view kind = "learned";
  static constexpr std::string_view summary = "a learned vector for every position, added to the token's embedding";
};

struct NoPositionsConfig {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary = "nothing: only the mixer's mask and window depend on positions";
};

struct SinusoidalPositionsConfig {
  static constexpr std::string_view kind = "sinusoidal";
  static constexpr std::string_view summary = "sines and cosines, added to the token's embedding (Vaswani et al. 2017)";
  double base = 10000;
};

struct RotaryPositionsConfig {
  static constexpr std::string_view kind = "rotary";
  static constexpr std::string_view summary =
      "queries and keys rotated by angles in proportion to the position (RoPE, Su et al. 2021)";
  double base = 10000;
  double fraction = 1;

  // Of `key_width` features of a head, those that are rotated: an even number.
  std::int64_t rotated_width(std::int64_t key_width) const {
    return static_cast<std::int64_t>(fraction * static_cast<double>(key_width)) / 2 * 2;
  }
};

struct AlibiPositionsConfig {
  static constexpr std::string_view kind = "alibi";
  static constexpr std::string_view summary =
      "scores fall with the distance, by a slope of each head (ALiBi, Press et al. 2022)";
};

struct T5PositionsConfig {
  static constexpr std::string_view kind = "t5";
  static constexpr std::string_view summary =
      "a learned number per head and bucket of distances, added to the scores (Raffel et al. 2020)";
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;
};

struct ShawPositionsConfig {
  static constexpr std::string_view kind = "shaw";
  static constexpr std::string_view summary =
      "learned vectors of clipped distances, added to keys and values (Shaw et al. 2018)";
  std::int64_t max_distance = 16;
};

struct TransformerXlPositionsConfig {
  static constexpr std::string_view kind = "transformer_xl";
  static constexpr std::string_view summary =
      "scores with projected sinusoids of the distance, and two learned vectors in place of the query's position "
      "(Transformer-XL, Dai et al. 2019)";
  bool shared_biases = true;
  std::int64_t clamp_length = 0;
};

using PositionsConfig =
    std::variant<LearnedPositionsConfig, NoPositionsConfig, SinusoidalPositionsConfig, RotaryPositionsConfig,
                 AlibiPositionsConfig, T5PositionsConfig, ShawPositionsConfig, TransformerXlPositionsConfig>;

// Whether positions change scores, and so need a mixer that has them; the others are added to the embeddings.
inline bool act_on_scores(const PositionsConfig& positions) {
  return is<RotaryPositionsConfig>(positions) || is<AlibiPositionsConfig>(positions) ||
         is<T5PositionsConfig>(positions) || is<ShawPositionsConfig>(positions) ||
         is<TransformerXlPositionsConfig>(positions);
}

template <class Visitor>
void visit(Visitor&, LearnedPositionsConfig&) {}

template <class Visitor>
void visit(Visitor&, NoPositionsConfig&) {}

template <class Visitor>
void visit(Visitor& field, SinusoidalPositionsConfig& c) {
  field("base", c.base, Range{.low = 1, .low_open = true}, "the longest wavelength is 2 pi base tokens");
}

template <class Visitor>
void visit(Visitor& field, RotaryPositionsConfig& c) {
  field("base", c.base, Range{.low = 1, .low_open = true}, "the longest wavelength is 2 pi base tokens");
  field("fraction", c.fraction, Range{.low = 0, .high = 1, .low_open = true},
        "of the features of a head, the first ones, that are rotated");
}

template <class Visitor>
void visit(Visitor&, AlibiPositionsConfig&) {}

template <class Visitor>
void visit(Visitor& field, T5PositionsConfig& c) {
  field("buckets", c.buckets, between(4, 4096),
        "half of them for exact distances, the others logarithmic; a classifier uses half for each side");
  field("max_distance", c.max_distance, between(2, 1 << 20), "from here on all distances share the last bucket");
}

template <class Visitor>
void visit(Visitor& field, ShawPositionsConfig& c) {
  field("max_distance", c.max_distance, between(1, 4096), "larger distances are clipped to this one");
}

template <class Visitor>
void visit(Visitor& field, TransformerXlPositionsConfig& c) {
  field("shared_biases", c.shared_biases, "all layers share the two learned vectors u and v; else each has its own");
  field("clamp_length", c.clamp_length, between(0, 1 << 20),
        "larger distances, to tokens behind or ahead, count as this one; 0: none does");
}

}  // namespace metaformer
