#pragma once
// The packing section of a config's data: several sequences in one row of a batch.

#include <cstdint>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

struct NoPackingConfig {
  static constexpr std::string_view kind = "none";
  static constexpr std::string_view summary =
      "a classifier's row is a text and padding; a language model's row is a window of the text";
};

// Of every kind of packing.
struct PackingOptions {
  std::int64_t depth = 3;
  bool separate = true;
};

struct ShortestFirstPackingConfig : PackingOptions {
  static constexpr std::string_view kind = "spfhp";
  static constexpr std::string_view summary =
      "shortest-pack-first: the longest text goes into the pack with the most room (Krell et al. 2021)";
};

struct LeastSquaresPackingConfig : PackingOptions {
  static constexpr std::string_view kind = "nnlshp";
  static constexpr std::string_view summary =
      "non-negative least squares over all ways to fill a row: less padding at a small depth (Krell et al. 2021)";
};

using PackingConfig = std::variant<NoPackingConfig, ShortestFirstPackingConfig, LeastSquaresPackingConfig>;

// Nothing for `none`.
inline const PackingOptions* packing_options(const PackingConfig& config) {
  if (const auto* shortest = std::get_if<ShortestFirstPackingConfig>(&config)) return shortest;
  return std::get_if<LeastSquaresPackingConfig>(&config);
}

constexpr const char* separate_help =
    "a token sees nothing of other texts in its row, and positions start again in each; false: for language models "
    "alone";

template <class Visitor>
void visit(Visitor&, NoPackingConfig&) {}

template <class Visitor>
void visit(Visitor& field, ShortestFirstPackingConfig& c) {
  field("depth", c.depth, between(0, 1 << 20), "most texts in a row; 1: rows with a text and padding; 0: any number");
  field("separate", c.separate, separate_help);
}

template <class Visitor>
void visit(Visitor& field, LeastSquaresPackingConfig& c) {
  field("depth", c.depth, between(1, 3), "most texts in a row: 1, 2 or 3");
  field("separate", c.separate, separate_help);
}

}  // namespace metaformer
