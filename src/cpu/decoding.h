#pragma once
// The arithmetic of generating one token on the CPU, in float32: products of a few vectors with a matrix, and a token's
// attention to those before it. Nothing is allocated. Sums are in an order of their own, whatever else is computed
// beside them.

#include <cstdint>

namespace metaformer {

// A linear layer, y = x W^T + b, or a part of its outputs.
struct LinearRows {
  const float* weight = nullptr;  // row-major [outputs, inputs]
  const float* bias = nullptr;    // [outputs] or none
  std::int64_t inputs = 0, outputs = 0;
};

// Outputs begin ... end - 1 of y_bo for `batch` rows of x_bi.
void multiply_rows(const LinearRows& layer, const float* x_bi, float* y_bo, std::int64_t batch, std::int64_t begin,
                   std::int64_t end);

float dot_product(const float* a, const float* b, std::int64_t width);

// What a head remembers of the tokens so far, the newest last.
struct SeenTokens {
  std::int64_t count = 0;
  const float* keys = nullptr;  // [count, key_width]
  std::int64_t key_width = 0;
  const float* values = nullptr;  // [count, value_width]
  std::int64_t value_width = 0;
  const float* score_offsets = nullptr;  // [count], added to the scores, or none
};

// t = softmax(scale r) v with r_e = q . k_e + offset_e, of which the newest token's counts `newest_share` times.
// `scores` has room for count, rounded up to a multiple of 16.
void attend_to_seen(const float* q, const SeenTokens& seen, float scale, float newest_share, float* scores, float* t);

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias (or none) of every row of x_bd.
void normalise_rows(const float* x_bd, const float* weight, const float* bias, float* y_bd, std::int64_t batch,
                    std::int64_t width, float epsilon);

}  // namespace metaformer
