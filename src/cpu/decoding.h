#pragma once
// The arithmetic of one token on the CPU, in float32: products of a few vectors with a matrix, which may be stored in
// bfloat16, a token's attention to those before it, and the gates of recurrent layers. Nothing is allocated. Sums are
// in an order of their own, whatever else is computed beside them.

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace metaformer {

// The type in which decoders keep the matrices of linear layers. All else is float32. With bf16 a token reads half as
// many bytes.
enum class WeightPrecision { fp32, bf16 };
constexpr std::array<std::string_view, 2> enum_names(WeightPrecision) { return {"fp32", "bf16"}; }

// A linear layer, y = x W^T + b, or a part of its outputs. W is row-major [outputs, inputs], in one of two types.
struct LinearRows {
  const float* weight = nullptr;
  const std::uint16_t* bf16_weight = nullptr;  // bfloat16, as bits
  const float* bias = nullptr;                 // [outputs] or none
  std::int64_t inputs = 0, outputs = 0;
};

// Outputs begin ... end - 1 of y_bo for `batch` rows of x_bi. If all weights are bfloat16 numbers, the results for both
// types of W have the same bits.
void multiply_rows(const LinearRows& layer, const float* x_bi, float* y_bo, std::int64_t batch, std::int64_t begin,
                   std::int64_t end);

float dot_product(const float* a, const float* b, std::int64_t width);

// The vectors of earlier tokens that a head keeps, the newest last.
struct SeenTokens {
  std::int64_t count = 0;
  const float* keys = nullptr;  // [count, key_width]
  std::int64_t key_width = 0;
  const float* values = nullptr;  // [count, value_width]
  std::int64_t value_width = 0;
  const float* score_offsets = nullptr;  // [count], added to the scores, or none
  // Stands in the softmax like the scaled score of one more token, whose value is 0; -infinity: none.
  float sink = -std::numeric_limits<float>::infinity();
};

// t = softmax(scale r) v with r_e = q . k_e + offset_e, of which the newest token's counts `newest_share` times.
// `scores` has room for count, rounded up to a multiple of 16.
void attend_to_seen(const float* q, const SeenTokens& seen, float scale, float newest_share, float* scores, float* t);

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias (or none) of every row of x_bd.
void normalise_rows(const float* x_bd, const float* weight, const float* bias, float* y_bd, std::int64_t batch,
                    std::int64_t width, float epsilon);

// The gates of an LSTM for one token of each of several sequences (model/recurrent_model.h has the formulas):
// of_x_bg = W x + b and of_h_bg = R h + b', the gates side by side in PyTorch's order: i, f, g, o. Replaces the states.
void step_lstm(const float* of_x_bg, const float* of_h_bg, float* h_bd, float* c_bd, std::int64_t batch,
               std::int64_t width);

// The same with the gates r, z, n.
void step_gru(const float* of_x_bg, const float* of_h_bg, float* h_bd, std::int64_t batch, std::int64_t width);

}  // namespace metaformer
