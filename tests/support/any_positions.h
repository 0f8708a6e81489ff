#pragma once
// Every kind of positions, for tests.

#include "config/model_config.h"
#include "support/torch_catch.h"

namespace metaformer {

// One of all kinds, some with two settings; the test case runs once with each.
inline PositionsConfig any_positions() {
  return GENERATE(
      PositionsConfig(NoPositionsConfig{}), PositionsConfig(LearnedPositionsConfig{}),
      PositionsConfig(SinusoidalPositionsConfig{}), PositionsConfig(RotaryPositionsConfig{}),
      PositionsConfig(RotaryPositionsConfig{.base = 500, .fraction = 0.5}), PositionsConfig(AlibiPositionsConfig{}),
      PositionsConfig(T5PositionsConfig{.buckets = 6, .max_distance = 7}),
      PositionsConfig(ShawPositionsConfig{.max_distance = 3}), PositionsConfig(TransformerXlPositionsConfig{}),
      PositionsConfig(TransformerXlPositionsConfig{.shared_biases = false, .clamp_length = 4}));
}

}  // namespace metaformer
