#pragma once
// The optimiser.

#include <array>
#include <optional>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

struct AdamWConfig {
  static constexpr std::string_view kind = "adamw";
  static constexpr std::string_view summary = "Adam with decoupled weight decay (Loshchilov and Hutter 2019)";
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0.1;
  std::optional<double> embedding_weight_decay;
};

using OptimizerConfig = std::variant<AdamWConfig>;

template <class Visitor>
void visit(Visitor& field, AdamWConfig& c) {
  field("betas", c.betas, from_to_below(0, 1), "decay rates of the two moments");
  field("weight_decay", c.weight_decay, at_least(0), "decay of the weights; applied to matrices only");
  field("embedding_weight_decay", c.embedding_weight_decay, at_least(0),
        "decay of the embeddings of tokens, positions and n-grams; null: as weight_decay");
}

}  // namespace metaformer
