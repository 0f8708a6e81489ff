#include "cpu/activation.h"

#include <algorithm>

#include "cpu/lanes.h"

namespace metaformer {

namespace {

template <class F, class Element>
METAFORMER_INLINE void activate_all(F f, const Element* x, Element* y, Element* slope, std::int64_t count) {
  Lanes value, derivative;
  std::int64_t i = 0;
  for (; i + lane_count <= count; i += lane_count) {
    f(load_lanes(x + i), value, derivative);
    store_lanes(y + i, value);
    store_lanes(slope + i, derivative);
  }
  if (i == count) return;
  Element rest[3][lane_count] = {};
  std::copy(x + i, x + count, rest[0]);
  f(load_lanes(rest[0]), value, derivative);
  store_lanes(rest[1], value);
  store_lanes(rest[2], derivative);
  std::copy_n(rest[1], count - i, y + i);
  std::copy_n(rest[2], count - i, slope + i);
}

// Sixteen elements of a gated product.
template <class F, class Element>
METAFORMER_INLINE void gate_lanes(F f, const Element* gate, const Element* up, Element* y, Element* gate_slope,
                                  Element* up_slope) {
  Lanes value, derivative;
  f(load_lanes(gate), value, derivative);
  const Lanes factor = load_lanes(up);
  store_lanes(y, value * factor);
  store_lanes(gate_slope, derivative * factor);
  store_lanes(up_slope, value);
}

template <class F, class Element>
METAFORMER_INLINE void gate_row(F f, const Element* x, Element* y, Element* slopes, std::int64_t width) {
  std::int64_t i = 0;
  for (; i + lane_count <= width; i += lane_count)
    gate_lanes(f, x + i, x + width + i, y + i, slopes + i, slopes + width + i);
  if (i == width) return;
  Element rest[5][lane_count] = {};
  std::copy(x + i, x + width, rest[0]);
  std::copy(x + width + i, x + 2 * width, rest[1]);
  gate_lanes(f, rest[0], rest[1], rest[2], rest[3], rest[4]);
  std::copy_n(rest[2], width - i, y + i);
  std::copy_n(rest[3], width - i, slopes + i);
  std::copy_n(rest[4], width - i, slopes + width + i);
}

struct Activation {
  template <class F, class Element>
  METAFORMER_INLINE void operator()(F f, const Element* x, Element* y, Element* slope, std::int64_t rows,
                                    std::int64_t width) const {
    activate_all(f, x, y, slope, rows * width);
  }
};

struct GatedProduct {
  template <class F, class Element>
  METAFORMER_INLINE void operator()(F f, const Element* x, Element* y, Element* slopes, std::int64_t rows,
                                    std::int64_t width) const {
    for (std::int64_t row = 0; row < rows; ++row)
      gate_row(f, x + row * 2 * width, y + row * width, slopes + row * 2 * width, width);
  }
};

// A switch, not std::visit over options: only that is sure to be inlined into the functions that are compiled for the
// CPU's instructions.
template <class Use, class Element>
METAFORMER_INLINE void apply(Use use, ActivationFunction f, const Element* x, Element* y, Element* slopes,
                             std::int64_t rows, std::int64_t width) {
  switch (f.kind) {
    case ActivationFunction::Kind::gelu:
      return use(GeluLanes{}, x, y, slopes, rows, width);
    case ActivationFunction::Kind::gelu_tanh:
      return use(GeluTanhLanes{}, x, y, slopes, rows, width);
    case ActivationFunction::Kind::relu:
      return use(ReluLanes{}, x, y, slopes, rows, width);
    case ActivationFunction::Kind::silu:
      return use(SiluLanes{f.beta}, x, y, slopes, rows, width);
    case ActivationFunction::Kind::relu_squared:
      return use(ReluSquaredLanes{}, x, y, slopes, rows, width);
  }
}

METAFORMER_EVERY_VECTOR_WIDTH
void activate_floats(ActivationFunction f, const float* x, float* y, float* slope, std::int64_t count) {
  apply(Activation{}, f, x, y, slope, 1, count);
}

METAFORMER_EVERY_VECTOR_WIDTH
void activate_bf16(ActivationFunction f, const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slope,
                   std::int64_t count) {
  apply(Activation{}, f, x, y, slope, 1, count);
}

METAFORMER_EVERY_VECTOR_WIDTH
void gate_floats(ActivationFunction f, const float* x, float* y, float* slopes, std::int64_t rows, std::int64_t width) {
  apply(GatedProduct{}, f, x, y, slopes, rows, width);
}

METAFORMER_EVERY_VECTOR_WIDTH
void gate_bf16(ActivationFunction f, const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slopes, std::int64_t rows,
               std::int64_t width) {
  apply(GatedProduct{}, f, x, y, slopes, rows, width);
}

}  // namespace

void activate(ActivationFunction f, const float* x, float* y, float* slope, std::int64_t count) {
  activate_floats(f, x, y, slope, count);
}

void activate(ActivationFunction f, const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slope,
              std::int64_t count) {
  activate_bf16(f, x, y, slope, count);
}

void gate(ActivationFunction f, const float* x, float* y, float* slopes, std::int64_t rows, std::int64_t width) {
  gate_floats(f, x, y, slopes, rows, width);
}

void gate(ActivationFunction f, const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slopes, std::int64_t rows,
          std::int64_t width) {
  gate_bf16(f, x, y, slopes, rows, width);
}

}  // namespace metaformer
