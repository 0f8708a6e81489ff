#include "cpu/activation.h"

#include "cpu/vector_math.h"

namespace metaformer {

namespace {

// Activations of sixteen floats, each with its slope: f(x, y, slope) sets y = f(x) and slope = f'(x).

// e / (1 + e)^2 and the like are 0 where e is: their product with an infinity would not be.
METAFORMER_INLINE Lanes product_or_0(Lanes vanishing, Lanes product) { return vanishing == 0.0f ? Lanes{} : product; }

struct GeluLanes {
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    constexpr float root_half = 0.707106781f, density_at_0 = 0.398942280f;
    const auto negative = x < 0.0f;
    const Lanes magnitude = negative ? -x : x;
    const Lanes e = exp_of(x * x * -0.5f);
    // With z = |x| / sqrt(2).
    const Lanes t = 1.0f / (1.0f + erfc_slope * root_half * magnitude);
    const Lanes tail = 0.5f * scaled_erfc(t) * e;
    const Lanes below = negative ? tail : 1.0f - tail;
    y = product_or_0(below, x * below);
    slope = below + product_or_0(e, x * density_at_0 * e);
  }
};

struct SiluLanes {
  float beta;
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    Lanes sigmoid, rise;
    sigmoid_lanes(beta * x, sigmoid, rise);
    y = product_or_0(sigmoid, x * sigmoid);
    slope = sigmoid + product_or_0(rise, beta * x * rise);
  }
};

// 0.5 (1 + tanh z) is the logistic function of 2 z.
struct GeluTanhLanes {
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    constexpr float twice_root = 1.59576912f, cubic = 0.044715f;  // 2 sqrt(2 / pi)
    const Lanes square = x * x;
    Lanes sigmoid, rise;
    sigmoid_lanes(twice_root * x * (1.0f + cubic * square), sigmoid, rise);
    y = product_or_0(sigmoid, x * sigmoid);
    slope = sigmoid + product_or_0(rise, x * twice_root * (1.0f + 3 * cubic * square) * rise);
  }
};

struct ReluLanes {
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    y = x < 0.0f ? Lanes{} : x;
    slope = x > 0.0f ? every_lane(1.0f) : Lanes{};
  }
};

struct ReluSquaredLanes {
  METAFORMER_INLINE void operator()(Lanes x, Lanes& y, Lanes& slope) const {
    const Lanes positive_part = x < 0.0f ? Lanes{} : x;
    y = positive_part * positive_part;
    slope = 2.0f * positive_part;
  }
};

// `count` elements of a row. Of a gated product, those by which they are multiplied lie `width` elements further.
template <bool gated, class F, class Element>
METAFORMER_INLINE void activate_lanes(F f, const Element* x, Element* y, Element* slopes, std::int64_t width,
                                      std::int64_t count) {
  Lanes value, slope;
  f(load_some(x, count), value, slope);
  if constexpr (gated) {
    const Lanes factor = load_some(x + width, count);
    store_some(y, value * factor, count);
    store_some(slopes, slope * factor, count);
    store_some(slopes + width, value, count);
  } else {
    store_some(y, value, count);
    store_some(slopes, slope, count);
  }
}

template <bool gated, class F, class Element>
METAFORMER_INLINE void activate_rows(F f, const Element* x, Element* y, Element* slopes, std::int64_t rows,
                                     std::int64_t width) {
  const auto step = gated ? 2 * width : width;
  for (std::int64_t row = 0; row < rows; ++row, x += step, y += width, slopes += step) {
    std::int64_t i = 0;
    for (; i + lane_count <= width; i += lane_count)
      activate_lanes<gated>(f, x + i, y + i, slopes + i, width, lane_count);
    if (i < width) activate_lanes<gated>(f, x + i, y + i, slopes + i, width, width - i);
  }
}

// A switch, not std::visit over options: only that is sure to be inlined into the functions that are compiled for the
// CPU's instructions.
template <bool gated, class Element>
METAFORMER_INLINE void apply(ActivationFunction f, const Element* x, Element* y, Element* slopes, std::int64_t rows,
                             std::int64_t width) {
  switch (f.kind) {
    case ActivationFunction::Kind::gelu:
      return activate_rows<gated>(GeluLanes{}, x, y, slopes, rows, width);
    case ActivationFunction::Kind::gelu_tanh:
      return activate_rows<gated>(GeluTanhLanes{}, x, y, slopes, rows, width);
    case ActivationFunction::Kind::relu:
      return activate_rows<gated>(ReluLanes{}, x, y, slopes, rows, width);
    case ActivationFunction::Kind::silu:
      return activate_rows<gated>(SiluLanes{f.beta}, x, y, slopes, rows, width);
    case ActivationFunction::Kind::relu_squared:
      return activate_rows<gated>(ReluSquaredLanes{}, x, y, slopes, rows, width);
  }
}

}  // namespace

METAFORMER_EVERY_VECTOR_WIDTH
void activate(ActivationFunction f, const float* x, float* y, float* slope, std::int64_t count) {
  apply<false>(f, x, y, slope, 1, count);
}

METAFORMER_EVERY_VECTOR_WIDTH
void activate(ActivationFunction f, const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slope,
              std::int64_t count) {
  apply<false>(f, x, y, slope, 1, count);
}

METAFORMER_EVERY_VECTOR_WIDTH
void gate(ActivationFunction f, const float* x, float* y, float* slopes, std::int64_t rows, std::int64_t width) {
  apply<true>(f, x, y, slopes, rows, width);
}

METAFORMER_EVERY_VECTOR_WIDTH
void gate(ActivationFunction f, const std::uint16_t* x, std::uint16_t* y, std::uint16_t* slopes, std::int64_t rows,
          std::int64_t width) {
  apply<true>(f, x, y, slopes, rows, width);
}

}  // namespace metaformer
