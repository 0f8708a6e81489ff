#pragma once
// Normal numbers by counting: a function of a draw (ops/pass.h) and of their places only, on any device.

#include <torch/types.h>

#include "ops/pass.h"

namespace metaformer {

// N(0, 1) in float32, as many as `sizes` say: entry i is made of Rng::with_key(seed of the draw).uniform(2 i) and
// uniform(2 i + 1) (Box and Muller 1958). The host never waits for the key.
torch::Tensor random_normal(const RandomDraw& draw, torch::IntArrayRef sizes);

}  // namespace metaformer
