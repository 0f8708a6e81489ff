#pragma once
// What the kernels of metric attention (cuda/metric_attention.h) are given: sizes and pointers.

#include <cstdint>

namespace metaformer::cuda {

// How elements are stored and multiplied. tf32 and fp32 are both stored as fp32; tf32 rounds the factors of products to
// 10 bits, fp32 keeps nearly all of them (four products for one).
enum class MetricElement { bf16, fp16, tf32, fp32 };

enum class MetricForm { dense, diagonal, identity };

// Distances in elements between neighbours of [b, n, c, k]; along k it is 1.
struct MetricStrides {
  std::int64_t batch = 0, head = 0, token = 0;
};

// Dropout of weights, those that DropoutMask (ops/dropout_kernel.h) takes of a contiguous [b, n, c, c'] for the seed
// Rng::with_key(*key).bits(number).
struct MetricDropout {
  MetricDropout() = default;
  // probability: in [0, 1).
  MetricDropout(double probability, const std::int64_t* key_of_draw, std::uint64_t number_of_draw)
      : key(key_of_draw),
        number(number_of_draw),
        limit(static_cast<std::uint32_t>(probability * 0x1p32)),
        factor(static_cast<float>(1 / (1 - probability))) {}

  const std::int64_t* key = nullptr;  // in device memory, read by the kernels; none: nothing is dropped
  std::uint64_t number = 0;
  std::uint32_t limit = 0;  // bits of a draw below it: dropped
  float factor = 1;         // of what is kept
};

// The inputs that forward and backward share. Sizes may be 0.
struct MetricInputs {
  MetricElement element = MetricElement::bf16;
  MetricForm form = MetricForm::dense;
  bool distance = false;
  bool causal = false;
  std::int64_t batch = 0, heads = 0, tokens = 0;
  int width = 0;  // of a head, k: a multiple of 8 up to 128
  float scale = 0;
  const void* p = nullptr;
  MetricStrides p_strides;
  const void* metric = nullptr;            // dense: [n, k, k]; diagonal: [n, k]; identity: none
  const std::int32_t* segments = nullptr;  // [b, c]: tokens see each other when equal and not -1; none: all one segment
  MetricDropout dropout;
};

// Every [b, n, c, k] without a strides member is contiguous, and so is every [b, n, c] of fp32.
struct MetricForward {
  MetricInputs in;
  void* t = nullptr;
  MetricStrides t_strides;
  float* log2_sum = nullptr;   // [b, n, c]: log2 sum_j exp(score_ij), +infinity where nothing is visible
  void* q = nullptr;           // p M, rounded, for backward; none: not written. Not for the identity, where it is p
  float* half_bias = nullptr;  // [b, n, c], distances only: -q_j . p_j / 2
};

struct MetricBackward {
  MetricInputs in;
  const void* q = nullptr;
  MetricStrides q_strides;
  const void* t = nullptr;
  MetricStrides t_strides;
  const void* dt = nullptr;
  MetricStrides dt_strides;
  const float* log2_sum = nullptr;
  const float* half_bias = nullptr;
  void* dp = nullptr;
  MetricStrides dp_strides;
  float* dmetric = nullptr;  // [n, k, k]: p^T dq, not symmetrised; none for the identity
  // Work space.
  float* dq_sum = nullptr;      // [b, n, c, k]: sum_j dS_ij p_j, scaled
  float* dkey = nullptr;        // [b, n, c, k]: what tokens as keys and values contribute to dp
  void* dq = nullptr;           // [b, n, c, k]
  float* delta = nullptr;       // [b, n, c]: dt_i . t_i
  float* row_sum = nullptr;     // [b, n, c], distances only: of dS, scaled
  float* column_sum = nullptr;  // the same
  unsigned* turns = nullptr;    // metric_turns(in)
  float* partial = nullptr;     // metric_gradient_parts(in) of [n, k, k]
};

}  // namespace metaformer::cuda
