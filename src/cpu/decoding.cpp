#include "cpu/decoding.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

constexpr int rows_at_once = 4;  // their sums wait for one another's latency

METAFORMER_INLINE float sum_of_lanes(Lanes x) {
  x += __builtin_shuffle(x, IntLanes{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
  x += __builtin_shuffle(x, IntLanes{4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11});
  x += __builtin_shuffle(x, IntLanes{2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13});
  return x[0] + x[1];
}

// sums[r] = rows[r] . x for Rows rows that lie `width` apart, by the same operations for any number of them. Prefetches
// the rows that follow: the CPU does not foresee that the next ones begin where the last of these ends. Past the end of
// a matrix a prefetch has no effect.
template <int Rows, class Weight>
METAFORMER_INLINE void dot_products(const Weight* rows, const float* x, std::int64_t width, float (&sums)[Rows]) {
  Lanes total[Rows] = {};
  std::int64_t i = 0;
  for (; i + lane_count <= width; i += lane_count) {
    const Lanes part = load_lanes(x + i);
    for (int r = 0; r < Rows; ++r) {
      __builtin_prefetch(rows + (r + Rows) * width + i);
      total[r] += load_lanes(rows + r * width + i) * part;
    }
  }
  if (i < width) {
    const Lanes part = load_some(x + i, width - i);
    for (int r = 0; r < Rows; ++r) total[r] += load_some(rows + r * width + i, width - i) * part;
  }
  for (int r = 0; r < Rows; ++r) sums[r] = sum_of_lanes(total[r]);
}

// use(index of a row, its product with x) for `count` rows.
template <class Weight, class Use>
METAFORMER_INLINE void for_each_product(const Weight* rows, std::int64_t count, const float* x, std::int64_t width,
                                        Use use) {
  std::int64_t row = 0;
  float sums[rows_at_once], sum[1];
  for (; row + rows_at_once <= count; row += rows_at_once) {
    dot_products(rows + row * width, x, width, sums);
    for (int r = 0; r < rows_at_once; ++r) use(row + r, sums[r]);
  }
  for (; row < count; ++row) {
    dot_products(rows + row * width, x, width, sum);
    use(row, sum[0]);
  }
}

// multiply_rows with the layer's matrix in one of its types.
template <class Weight>
METAFORMER_INLINE void multiply_by(const Weight* weight, const LinearRows& layer, const float* x_bi, float* y_bo,
                                   std::int64_t batch, std::int64_t begin, std::int64_t end) {
  // A few rows of the matrix at a time, which then stay in the cache for the whole batch.
  for (auto first = begin; first < end; first += rows_at_once) {
    const auto count = std::min<std::int64_t>(rows_at_once, end - first);
    for (std::int64_t b = 0; b < batch; ++b)
      for_each_product(weight + first * layer.inputs, count, x_bi + b * layer.inputs, layer.inputs,
                       [&](std::int64_t row, float sum) {
                         const float bias = layer.bias != nullptr ? layer.bias[first + row] : 0;
                         y_bo[b * layer.outputs + first + row] = sum + bias;
                       });
  }
}

// scores become softmax's numerators; returns the sum of them and of the sink's. Lanes beyond the last score count
// nothing.
METAFORMER_INLINE float exponentiate(float* scores, std::int64_t count, float sink) {
  const auto rounded = (count + lane_count - 1) / lane_count * lane_count;
  std::fill(scores + count, scores + rounded, -std::numeric_limits<float>::infinity());
  const float greatest = *std::max_element(scores, scores + count);
  Lanes total = {};
  for (std::int64_t i = 0; i < rounded; i += lane_count) {
    const Lanes weight = exp_of(load_lanes(scores + i) - greatest);
    store_lanes(scores + i, weight);
    total += weight;
  }
  const float sum = sum_of_lanes(total);
  return sink == -std::numeric_limits<float>::infinity() ? sum : sum + std::exp(sink - greatest);
}

// t = the sum of the rows, each times its weight, times `factor`; Vectors times 16 columns.
template <int Vectors>
METAFORMER_INLINE void mix_columns(const float* rows, const float* weights, std::int64_t count, std::int64_t width,
                                   float factor, float* t) {
  Lanes total[Vectors] = {};
  for (std::int64_t e = 0; e < count; ++e)
    for (int v = 0; v < Vectors; ++v) total[v] += load_lanes(rows + e * width + v * lane_count) * weights[e];
  for (int v = 0; v < Vectors; ++v) store_lanes(t + v * lane_count, total[v] * factor);
}

METAFORMER_INLINE void mix_rows(const float* rows, const float* weights, std::int64_t count, std::int64_t width,
                                float factor, float* t) {
  constexpr int together = 4;
  std::int64_t column = 0;
  for (; column + together * lane_count <= width; column += together * lane_count)
    mix_columns<together>(rows + column, weights, count, width, factor, t + column);
  for (; column + lane_count <= width; column += lane_count)
    mix_columns<1>(rows + column, weights, count, width, factor, t + column);
  for (; column < width; ++column) {
    float total = 0;
    for (std::int64_t e = 0; e < count; ++e) total += rows[e * width + column] * weights[e];
    t[column] = total * factor;
  }
}

METAFORMER_INLINE Lanes sigmoid_of(Lanes z) {
  Lanes y, slope;
  sigmoid_lanes(z, y, slope);
  return y;
}

METAFORMER_INLINE Lanes tanh_of(Lanes z) { return 2.0f * sigmoid_of(2.0f * z) - 1.0f; }

// use(first entry of a sequence among those of its states, place in it, number of entries) in steps of sixteen.
template <class Use>
METAFORMER_INLINE void for_each_part(std::int64_t batch, std::int64_t width, Use use) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < width; i += lane_count)
      use(b * width, i, std::min<std::int64_t>(lane_count, width - i));
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void multiply_rows(const LinearRows& layer, const float* x_bi, float* y_bo, std::int64_t batch, std::int64_t begin,
                   std::int64_t end) {
  if (layer.bf16_weight != nullptr) return multiply_by(layer.bf16_weight, layer, x_bi, y_bo, batch, begin, end);
  multiply_by(layer.weight, layer, x_bi, y_bo, batch, begin, end);
}

METAFORMER_EVERY_VECTOR_WIDTH
float dot_product(const float* a, const float* b, std::int64_t width) {
  float sum[1];
  dot_products(a, b, width, sum);
  return sum[0];
}

METAFORMER_EVERY_VECTOR_WIDTH
void attend_to_seen(const float* q, const SeenTokens& seen, float scale, float newest_share, float* scores, float* t) {
  for_each_product(seen.keys, seen.count, q, seen.key_width, [&](std::int64_t e, float product) {
    const float offset = seen.score_offsets != nullptr ? seen.score_offsets[e] : 0;
    scores[e] = scale * (product + offset);
  });
  scores[seen.count - 1] *= newest_share;
  const float total = exponentiate(scores, seen.count, seen.sink);
  mix_rows(seen.values, scores, seen.count, seen.value_width, 1 / total, t);
}

METAFORMER_EVERY_VECTOR_WIDTH
void normalise_rows(const float* x_bd, const float* weight, const float* bias, float* y_bd, std::int64_t batch,
                    std::int64_t width, float epsilon) {
  for (std::int64_t b = 0; b < batch; ++b) {
    const float* x = x_bd + b * width;
    float* y = y_bd + b * width;
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += x[i];
    const auto mean = static_cast<float>(sum / static_cast<double>(width));
    for (std::int64_t i = 0; i < width; ++i) squares += static_cast<double>(x[i] - mean) * (x[i] - mean);
    const auto variance = static_cast<float>(squares / static_cast<double>(width));
    const float factor = 1 / std::sqrt(variance + epsilon);
    for (std::int64_t i = 0; i < width; ++i)
      y[i] = (x[i] - mean) * factor * weight[i] + (bias != nullptr ? bias[i] : 0);
  }
}

METAFORMER_EVERY_VECTOR_WIDTH
void step_lstm(const float* of_x_bg, const float* of_h_bg, float* h_bd, float* c_bd, std::int64_t batch,
               std::int64_t width) {
  for_each_part(batch, width, [&](std::int64_t row, std::int64_t i, std::int64_t count) {
    const auto gate = [&](std::int64_t number) {
      const auto at = 4 * row + number * width + i;
      return load_some(of_x_bg + at, count) + load_some(of_h_bg + at, count);
    };
    const Lanes kept = sigmoid_of(gate(1)) * load_some(c_bd + row + i, count);
    const Lanes cell = kept + sigmoid_of(gate(0)) * tanh_of(gate(2));
    store_some(c_bd + row + i, cell, count);
    store_some(h_bd + row + i, sigmoid_of(gate(3)) * tanh_of(cell), count);
  });
}

METAFORMER_EVERY_VECTOR_WIDTH
void step_gru(const float* of_x_bg, const float* of_h_bg, float* h_bd, std::int64_t batch, std::int64_t width) {
  for_each_part(batch, width, [&](std::int64_t row, std::int64_t i, std::int64_t count) {
    const auto of_x = [&](std::int64_t gate) { return load_some(of_x_bg + 3 * row + gate * width + i, count); };
    const auto of_h = [&](std::int64_t gate) { return load_some(of_h_bg + 3 * row + gate * width + i, count); };
    const Lanes reset = sigmoid_of(of_x(0) + of_h(0)), update = sigmoid_of(of_x(1) + of_h(1));
    const Lanes fresh = tanh_of(of_x(2) + reset * of_h(2)), before = load_some(h_bd + row + i, count);
    store_some(h_bd + row + i, fresh + update * (before - fresh), count);
  });
}

}  // namespace metaformer
