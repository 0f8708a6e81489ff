#include "cpu/recurrent.h"

#include <algorithm>

#include "cpu/lanes.h"

namespace metaformer {

namespace {

METAFORMER_INLINE Lanes sigmoid_of(Lanes z) {
  Lanes y, slope;
  sigmoid_lanes(z, y, slope);
  return y;
}

METAFORMER_INLINE Lanes tanh_of(Lanes z) { return 2.0f * sigmoid_of(2.0f * z) - 1.0f; }

// Up to sixteen numbers; the rest are zeros.
METAFORMER_INLINE Lanes load_some(const float* from, std::int64_t count) {
  if (count == lane_count) return load_lanes(from);
  Lanes x = {};
  std::memcpy(&x, from, static_cast<std::size_t>(count) * sizeof(float));
  return x;
}

METAFORMER_INLINE void store_some(float* to, Lanes x, std::int64_t count) {
  if (count == lane_count) return store_lanes(to, x);
  std::memcpy(to, &x, static_cast<std::size_t>(count) * sizeof(float));
}

// use(first entry of a sequence among those of its states, place in it, number of entries) in steps of sixteen.
template <class Use>
METAFORMER_INLINE void for_each_part(std::int64_t batch, std::int64_t width, Use use) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < width; i += lane_count)
      use(b * width, i, std::min<std::int64_t>(lane_count, width - i));
}

}  // namespace

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
