#pragma once
// The optimiser.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "config/schema.h"

namespace metaformer {

// Which parameters decay, and how fast; what that means depends on the optimiser.
struct WeightDecayConfig {
  double weight_decay = 0;
  std::optional<double> embedding_weight_decay;
};

// The two running moments of Adam (Kingma and Ba 2015).
struct MomentsConfig {
  std::array<double, 2> betas = {0.9, 0.99};
  double epsilon = 1e-8;
};

struct AdamWConfig : MomentsConfig, WeightDecayConfig {
  static constexpr std::string_view kind = "adamw";
  static constexpr std::string_view summary = "Adam with decoupled weight decay (Loshchilov and Hutter 2019)";
  AdamWConfig() { weight_decay = 0.1; }
};

struct AdamConfig : MomentsConfig, WeightDecayConfig {
  static constexpr std::string_view kind = "adam";
  static constexpr std::string_view summary =
      "Adam (Kingma and Ba 2015); weight_decay times a weight is added to its gradient";
};

struct SgdConfig : WeightDecayConfig {
  static constexpr std::string_view kind = "sgd";
  static constexpr std::string_view summary =
      "stochastic gradient descent; weight_decay times a weight is added to its gradient";
  double momentum = 0;
};

struct MuonConfig : MomentsConfig, WeightDecayConfig {
  static constexpr std::string_view kind = "muon";
  static constexpr std::string_view summary =
      "orthogonalised momentum for the matrices of the blocks (Jordan et al. 2024), AdamW for the rest";
  double momentum = 0.95;
  std::int64_t iterations = 5;
  MuonConfig() { weight_decay = 0.1; }
};

struct AdagradConfig : WeightDecayConfig {
  static constexpr std::string_view kind = "adagrad";
  static constexpr std::string_view summary =
      "a rate for each weight that falls with the sum of its squared gradients (Duchi et al. 2011); weight_decay times "
      "a weight is added to its gradient";
  double epsilon = 1e-10;
};

using OptimizerConfig = std::variant<AdamWConfig, AdamConfig, SgdConfig, MuonConfig, AdagradConfig>;

template <class Visitor>
void visit_moments(Visitor& field, MomentsConfig& c) {
  field("betas", c.betas, from_to_below(0, 1), "decay rates of the two moments");
  field("epsilon", c.epsilon, positive, "added to the root of the second moment");
}

template <class Visitor>
void visit_weight_decay(Visitor& field, WeightDecayConfig& c) {
  field("weight_decay", c.weight_decay, at_least(0), "decay of the weights; applied to matrices only");
  field("embedding_weight_decay", c.embedding_weight_decay, at_least(0),
        "decay of the embeddings of tokens, positions and n-grams; null: as weight_decay");
}

template <class Visitor>
void visit(Visitor& field, AdamWConfig& c) {
  visit_moments(field, c);
  visit_weight_decay(field, c);
}

template <class Visitor>
void visit(Visitor& field, AdamConfig& c) {
  visit_moments(field, c);
  visit_weight_decay(field, c);
}

template <class Visitor>
void visit(Visitor& field, SgdConfig& c) {
  field("momentum", c.momentum, from_to_below(0, 1), "share of the last update's direction that is kept");
  visit_weight_decay(field, c);
}

template <class Visitor>
void visit(Visitor& field, AdagradConfig& c) {
  field("epsilon", c.epsilon, positive, "added to the root of the sum");
  visit_weight_decay(field, c);
}

template <class Visitor>
void visit(Visitor& field, MuonConfig& c) {
  field("momentum", c.momentum, from_to_below(0, 1), "decay rate of the matrices' mean gradient (Nesterov's form)");
  field("iterations", c.iterations, between(1, 100), "Newton-Schulz iterations that orthogonalise it");
  visit_moments(field, c);
  visit_weight_decay(field, c);
}

}  // namespace metaformer
