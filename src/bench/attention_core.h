#pragma once
// The core of a token mixer: what it computes between its projections and its output, on random inputs.

#include <torch/types.h>

#include <functional>
#include <optional>
#include <vector>

#include "attention/mixer.h"
#include "config/mixer_config.h"

namespace metaformer {

// Tensors that a core takes, leaves of the graph: vectors of tokens, [b, n, c, k] as heads of a projection [b, c, n k]
// lie, then the form of a mixer that has one.
//
//   scaled_dot_product                  q, k, v
//   quadratic, projected                p, W [n, k, k]
//   quadratic, full                     x [b, c, d], p, U [n, d, d]
//   metric, symmetric or psd            p, M [n, k, k]
//   metric, diagonal                    p, m [n, k]
//   metric, identity                    p
//   lsh                                 q, v
//   average_pooling, identity, none     x [b, c, d]
using CoreInputs = std::vector<torch::Tensor>;

using CoreMix = std::function<torch::Tensor(const CoreInputs& inputs, const Visibility& visibility)>;

struct AttentionShape {
  std::int64_t batch = 4, heads = 4, context = 256, head_width = 32;
  PositionsConfig positions = NoPositionsConfig{};  // of layers with their projections, those that act on scores
  std::int64_t width() const { return heads * head_width; }
  MixerShape mixer_shape() const {
    return {.width = width(), .heads = heads, .context = context, .positions = positions};
  }
};

// Normal numbers in float32, on the CPU the same in every process.
class NormalDraws {
 public:
  explicit NormalDraws(torch::Device device);
  torch::Tensor draw(const std::vector<std::int64_t>& sizes);

 private:
  torch::Device device_;
  torch::Generator generator_;  // of the CPU
};

// In float32, with scores of the standard deviation 1. Nothing where the benchmark does not know the mixer's core: with
// values of their own, qk_norm, fixed_norm, score as_published, and for a mixer of another program that has an output
// projection.
std::optional<CoreInputs> draw_core_inputs(const MixerConfig& mixer, const AttentionShape& shape, NormalDraws& draws);

// Gives t, [b, c, n k], by the backend of a mixer whose core is known. The backend is not auto.
CoreMix make_core_mix(const MixerConfig& mixer, const AttentionShape& shape);

// Of a layer with its projections; of what a causal mask hides nothing is counted.
MixerCost layer_cost(const MixerConfig& mixer, const AttentionShape& shape, bool causal);

// Floating-point operations of a forward call: of a layer, and of its projections.
double forward_operations(const MixerConfig& mixer, const AttentionShape& shape, bool causal);
double projection_operations(const MixerConfig& mixer, const AttentionShape& shape);

}  // namespace metaformer
