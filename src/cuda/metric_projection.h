#pragma once
// The kernels around the library's attention (ops/library_metric.h). Before it: p, the normalised projection x of the
// tokens, and q = p M, for every head:
//
//   f = 1 / sqrt(mean(x^2) + epsilon),  p = f gain x,  q = p M              without a norm p is x
//
// After its backward pass, which gives dq, dk (of p as a key) and dv:
//
//   dp = dq M^T + dk  [values that are p: + dv]
//   dx = f (gain dp - f^2 mean(gain dp x) x),  dgain = sum f dp x,  dM = p^T dq
//
// Types are bf16 and fp16; sums are in fp32, the norm's too.

#include "cuda/metric_attention.h"

namespace metaformer::cuda {

// A [b, n, c, k] tensor, aligned to 16 bytes, with strides that are multiples of 8 elements.
struct MetricRows {
  void* data = nullptr;
  MetricStrides strides;
};

struct MetricProjection {
  MetricInputs in;  // element, form, sizes, metric; the tokens of `queries`, whose p is x, aligned as MetricRows are
  bool normalised = false;
  float epsilon = 0;            // above 0 with a norm
  const float* gain = nullptr;  // [k]; none: 1
  MetricRows p;                 // results; p: none without a norm, where it is x
  MetricRows q;                 // none for the identity, where it is p
};

struct MetricProjectionBackward {
  MetricProjection forward;  // without its results
  MetricRows dq, dk, dv;
  MetricRows dx;
  MetricRows dvalue;         // where dv is copied to; none: values are p
  float* dmetric = nullptr;  // [n, k, k], not symmetrised; none for the identity
  float* dgain = nullptr;    // [n, k], of each head; none without a gain
  // How many partial sums of dM and dgain are kept, up to the tiles of tokens; they are added in order.
  std::int64_t parts = 1;
  float* partial = nullptr;  // work space: `parts` of [n, rows, k], with k rows for dM and one for dgain, if asked for
};

// As many parts as keep a GPU busy.
std::int64_t metric_projection_parts(const MetricInputs& in);

// Run on `stream` (a cudaStream_t) of the current device and return at once. Equal inputs give equal bits. Errors
// (exit code 1): sizes and types that the kernels cannot do, or what CUDA says of a launch.
void metric_project(const MetricProjection& projection, void* stream);
void metric_project_backward(const MetricProjectionBackward& backward, void* stream);

}  // namespace metaformer::cuda
