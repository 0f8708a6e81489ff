#pragma once
// Metric attention by LibTorch's attention with two kernels around it (cuda/metric_projection.h), in one node of the
// graph: from the projection of the tokens to the mixed vectors.

#include <torch/types.h>

#include <optional>
#include <string>

namespace metaformer {

struct LibraryMetricOptions {
  std::int64_t heads = 1;
  bool own_values = false;             // values are the second half of the projection; otherwise p
  std::optional<double> norm_epsilon;  // of the RMS norm of p, per head; nullopt: p is not normalised
  bool causal = false;
  double scale = 1;  // of scores
};

// The reason why it cannot compute in this type on this device, in a few words; "" if it can. The types are bfloat16
// and float16: LibTorch's fast attention has no others.
std::string library_metric_obstacle(torch::ScalarType type, torch::Device device);

// t_bnck = softmax(scale p M p^T) v, as self-attention. p is the first n k features of `projected_bcd`, [b, c, n k] or
// with own values [b, c, 2 n k], normalised and multiplied by `gain_k` (undefined: 1). `metric`: [n, k, k], which need
// not be symmetric, [n, k] (diagonal), or undefined (identity); its gradient is not symmetrised. k is a multiple of 8
// up to 128.
//
// The attention is cuDNN's where LibTorch would choose it, else LibTorch's flash attention, whose backward pass may add
// in any order on a GPU; all other sums have a fixed order. Keeps the projection, p, q = p M, t and one number per
// token and head. Runs on the current stream and never waits for it. Throws Error (exit code 2) naming the obstacle.
torch::Tensor library_metric_attention(const torch::Tensor& projected_bcd, const torch::Tensor& gain_k,
                                       const torch::Tensor& metric, const LibraryMetricOptions& options);

}  // namespace metaformer
