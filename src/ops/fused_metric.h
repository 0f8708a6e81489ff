#pragma once
// Attention by the kernels of cuda/metric_attention.h, with gradients: metric, quadratic and scaled dot product.

#include <torch/types.h>

#include <string>

#include "ops/pass.h"

namespace metaformer {

struct FusedMetricOptions {
  bool distance = false;
  bool causal = false;
  torch::Tensor query_segment_bc, key_segment_be;  // integers; -1: padding; undefined: all one segment
  double scale = 1;
  double dropout = 0;  // of the weights, in training
};

// Vectors of queries, keys and values (undefined: those of the keys). Queries and keys may be the same tensor.
struct MetricVectors {
  torch::Tensor p_bnck, keys_bnek, value_bnek;
};

// Whether there are kernels of that head width for values of their own.
bool fused_values_fit(torch::ScalarType type, std::int64_t width);

// Why the kernels cannot do this, in a few words, or "". `metric`: [n, k, k], [n, k] (diagonal), or undefined
// (identity).
std::string fused_metric_obstacle(const MetricVectors& vectors, const torch::Tensor& metric);

// Why the kernels of this executable do not run on a device, or "".
std::string metric_kernel_obstacle(torch::Device device);

// Once per mixer, before its first launch: a form that is not finite would only show as a loss that is not. Waits for
// the device. Throws Error (exit code 4).
void require_finite_form(const torch::Tensor& metric);

// t_bnck in p's type; with a causal mask keys stand in order and queries are the last of them. With queries in place of
// p, without a metric and with values it is scaled dot product attention. A distance needs a symmetric metric. Dropout
// draws once, and takes the weights that dropout() would take of [b, n, c, e]. Keeps p, q = p M, t and one number per
// token and head for backward, nothing of size c e; runs on the current stream and never waits for it. The gradient of
// a distance's metric is only right once it is symmetrised. Equal inputs give equal bits. Throws Error (exit code 2)
// naming the obstacle.
torch::Tensor fused_metric_attention(const MetricVectors& vectors, const torch::Tensor& metric,
                                     const FusedMetricOptions& options, Pass& pass);

}  // namespace metaformer
