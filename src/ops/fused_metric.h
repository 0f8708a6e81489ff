#pragma once
// Attention by the kernels of cuda/metric_attention.h, with gradients: metric, quadratic and scaled dot product.

#include <torch/types.h>

#include <string>

#include "ops/pass.h"

namespace metaformer {

struct FusedMetricOptions {
  bool distance = false;
  bool causal = false;
  torch::Tensor query_segment_bc, key_segment_be;  // integers; -1: padding; undefined: one segment
  double scale = 1;
  double dropout = 0;           // of the weights, in training
  bool short_backward = false;  // backward in one kernel, if there is one (has_short_backward)
};

// The vectors of queries, keys and values (undefined values: the keys). Queries and keys may be the same tensor.
struct MetricVectors {
  torch::Tensor p_bnck, keys_bnek, value_bnek;
};

// Whether there are kernels of that head width for values that are not the keys.
bool fused_values_fit(torch::ScalarType type, std::int64_t width);

// The reason why the kernels cannot compute this, in a few words; "" if they can. `metric`: [n, k, k], [n, k]
// (diagonal), or undefined (identity).
std::string fused_metric_obstacle(const MetricVectors& vectors, const torch::Tensor& metric);

// The reason why the kernels of this executable do not run on a device; "" if they do.
std::string metric_kernel_obstacle(torch::Device device);

// Whether there is a kernel for the whole backward pass of these vectors on their device: in 16 bits and
// self-attention, for up to 256 tokens and head widths up to 64, as far as its shared memory suffices. It needs no q of
// forward.
bool has_short_backward(const MetricVectors& vectors, bool distance);

// Throws Error (exit code 4) if a form is not finite, which would otherwise only show as a loss that is not finite.
// Waits for the device; to be called once per mixer, before its first launch.
void require_finite_form(const torch::Tensor& metric);

// Returns t_bnck in p's type. With a causal mask the keys are in order and the queries are the last of them. With
// queries in place of p, without a metric and with values it is scaled dot product attention. A distance needs a
// symmetric metric. Dropout makes one draw, and drops the weights that dropout_of_weights() would drop of [b, n, c, e].
// Keeps p, q = p M, t and one number per token and head for backward, nothing of size c e; runs on the current stream
// and never waits for it. The gradient of a distance's metric is only right after it is symmetrised. Equal inputs give
// equal bits. Throws Error (exit code 2) naming the obstacle.
torch::Tensor fused_metric_attention(const MetricVectors& vectors, const torch::Tensor& metric,
                                     const FusedMetricOptions& options, Pass& pass);

}  // namespace metaformer
