#include <algorithm>

#include "cuda/activation.h"
#include "cuda/rows.h"

namespace metaformer::cuda {

namespace {

constexpr int threads = 256, warps = threads / gpu::warp_size;
constexpr int tile_columns = gpu::warp_size * columns_of_lane;

// f(x) and f'(x), as in cpu/activation.cpp.
struct Point {
  float value, slope;
};

GPU_DEVICE float exponential(float x) {
  constexpr float log2_e = 1.44269504f;
  return gpu::exp2_approximate(log2_e * x);
}

// e / (1 + e)^2 and the like are 0 where e is: their product with an infinity would not be.
GPU_DEVICE float product_or_0(float vanishing, float product) { return vanishing == 0 ? 0.0f : product; }

struct Gelu {
  GPU_DEVICE Point operator()(float x) const {
    constexpr float root_half = 0.707106781f, density_at_0 = 0.398942280f;
    const float magnitude = x < 0 ? -x : x, e = exponential(-0.5f * x * x);
    const float tail = 0.5f * scaled_erfc(gpu::reciprocal_approximate(1 + erfc_slope * root_half * magnitude)) * e;
    const float below = x < 0 ? tail : 1 - tail;
    return {product_or_0(below, x * below), below + product_or_0(e, x * density_at_0 * e)};
  }
};

// The logistic function.
GPU_DEVICE Point sigmoid(float z) {
  const float e = exponential(z < 0 ? z : -z), t = gpu::reciprocal_approximate(1 + e);
  return {z < 0 ? e * t : t, e * t * t};
}

struct Silu {
  float beta;
  GPU_DEVICE Point operator()(float x) const {
    const auto s = sigmoid(beta * x);
    return {product_or_0(s.value, x * s.value), s.value + product_or_0(s.slope, beta * x * s.slope)};
  }
};

// 0.5 (1 + tanh z) is the logistic function of 2 z.
struct GeluTanh {
  GPU_DEVICE Point operator()(float x) const {
    constexpr float twice_root = 1.59576912f, cubic = 0.044715f;  // 2 sqrt(2 / pi)
    const float square = x * x;
    const auto s = sigmoid(twice_root * x * (1 + cubic * square));
    return {product_or_0(s.value, x * s.value),
            s.value + product_or_0(s.slope, x * twice_root * (1 + 3 * cubic * square) * s.slope)};
  }
};

struct Relu {
  GPU_DEVICE Point operator()(float x) const { return {x < 0 ? 0.0f : x, x > 0 ? 1.0f : 0.0f}; }
};

struct ReluSquared {
  GPU_DEVICE Point operator()(float x) const {
    const float positive_part = x < 0 ? 0.0f : x;
    return {positive_part * positive_part, 2 * positive_part};
  }
};

struct ActivationRule {
  ActivationBackward in;
  std::int64_t parts = 0;  // of the rows: part i has rows i, i + parts, ... of as many rows as a block has warps
  int tiles = 0;           // of the columns of y
  bool aligned = false;    // all rows, to four entries
  bool aligned_bias = false;
};

// A lane's columns of y in the rows of a block, and those of x: of a gate and of the factors as wide as y.
template <bool Gated>
class LaneColumns {
 public:
  static constexpr int halves = Gated ? 2 : 1;
  using Words = unsigned[halves][4];
  using Values = float[halves][4];

  GPU_DEVICE explicit LaneColumns(const ActivationRule& rule)
      : rule_(rule),
        width_(rule.in.forward.width),
        part_(static_cast<int>(gpu::block_index()) / rule.tiles),
        column_((static_cast<int>(gpu::block_index()) % rule.tiles * gpu::warp_size + lane_index()) * columns_of_lane) {
  }

  // use(row) for every row of the warp.
  template <class Use>
  GPU_DEVICE void for_each_row(Use use) const {
    GPU_UNROLL_BY(2)
    for (std::int64_t row = static_cast<std::int64_t>(part_) * warps + warp_index();
         gpu::within(row < rule_.in.forward.rows); row += rule_.parts * warps)
      use(row);
  }

  template <class Format>
  GPU_DEVICE void load_y(unsigned (&words)[4], const void* y, std::int64_t row) const {
    const auto* from = static_cast<const typename Format::Element*>(y) + row * width_ + column_;
    load_some<Format>(words, from, width_ - column_, rule_.aligned);
  }
  template <class Format>
  GPU_DEVICE void store_y(void* y, std::int64_t row, const float (&values)[4]) const {
    auto* to = static_cast<typename Format::Element*>(y) + row * width_ + column_;
    store_some<Format>(to, values, width_ - column_, rule_.aligned);
  }
  template <class Format>
  GPU_DEVICE void load_x(Words& words, const void* x, std::int64_t row) const {
    const auto* from = static_cast<const typename Format::Element*>(x) + row * halves * width_ + column_;
    GPU_UNROLL
    for (int h = 0; h < halves; ++h) load_some<Format>(words[h], from + h * width_, width_ - column_, rule_.aligned);
  }
  template <class Format>
  GPU_DEVICE void store_x(void* x, std::int64_t row, const Values& values) const {
    auto* to = static_cast<typename Format::Element*>(x) + row * halves * width_ + column_;
    GPU_UNROLL
    for (int h = 0; h < halves; ++h) store_some<Format>(to + h * width_, values[h], width_ - column_, rule_.aligned);
  }

  GPU_DEVICE void load_bias(Values& bias) const {
    const auto* from = rule_.in.forward.bias;
    GPU_UNROLL
    for (int h = 0; h < halves; ++h) {
      unsigned words[4] = {0, 0, 0, 0};
      if (from != nullptr) load_some<Fp32>(words, from + h * width_ + column_, width_ - column_, rule_.aligned_bias);
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) bias[h][i] = gpu::float_of(words[i]);
    }
  }

  // Stores the sums over the warps of the block as a row of the partial sums. `sums`: four floats for each thread.
  GPU_DEVICE void store_sums(const Values& x, float* sums) const {
    float* to = rule_.in.partial + static_cast<std::int64_t>(part_) * halves * width_;
    const int first = column_ - lane_index() * columns_of_lane, thread = gpu::thread_index();
    GPU_UNROLL
    for (int h = 0; h < halves; ++h) {
      gpu::sync_threads();  // until all have read the sums of the first half
      store_four<Fp32>(sums + thread * columns_of_lane, x[h]);
      gpu::sync_threads();
      if (thread >= tile_columns || !gpu::within(first + thread < width_)) continue;
      float sum = 0;
      GPU_UNROLL
      for (int warp = 0; warp < warps; ++warp) sum += sums[warp * tile_columns + thread];
      to[h * width_ + first + thread] = sum;
    }
  }

 private:
  const ActivationRule& rule_;
  int width_, part_, column_;
};

template <class F, bool Gated, class Format>
GPU_DEVICE void activate_rows(const F& f, const ActivationRule& rule) {
  using Columns = LaneColumns<Gated>;
  const Columns columns(rule);
  typename Columns::Values bias;
  columns.load_bias(bias);
  columns.for_each_row([&](std::int64_t row) {
    typename Columns::Words words;
    columns.template load_x<Format>(words, rule.in.forward.x, row);
    float y[4];
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      y[i] = f(entry_of<Format>(words[0], i) + bias[0][i]).value;
      if constexpr (Gated) y[i] *= entry_of<Format>(words[1], i) + bias[1][i];
    }
    columns.template store_y<Format>(rule.in.forward.y, row, y);
  });
}

template <class F, bool Gated, class Format>
GPU_DEVICE void add_gradients(const F& f, const ActivationRule& rule, float* sums) {
  using Columns = LaneColumns<Gated>;
  const Columns columns(rule);
  typename Columns::Values bias, total;
  columns.load_bias(bias);
  GPU_UNROLL
  for (int h = 0; h < Columns::halves; ++h) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) total[h][i] = 0;
  }
  columns.for_each_row([&](std::int64_t row) {
    typename Columns::Words words;
    unsigned dy_words[4];
    columns.template load_x<Format>(words, rule.in.forward.x, row);
    columns.template load_y<Format>(dy_words, rule.in.dy, row);
    typename Columns::Values dx;
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto point = f(entry_of<Format>(words[0], i) + bias[0][i]);
      const float dy = entry_of<Format>(dy_words, i);
      dx[0][i] = dy * point.slope;
      if constexpr (Gated) {
        dx[0][i] *= entry_of<Format>(words[1], i) + bias[1][i];
        dx[1][i] = dy * point.value;
        total[1][i] += dx[1][i];
      }
      total[0][i] += dx[0][i];
    }
    if (rule.in.dx != nullptr) columns.template store_x<Format>(rule.in.dx, row, dx);
  });
  if (rule.in.dbias != nullptr) columns.store_sums(total, sums);
}

template <class F, bool Gated>
GPU_KERNEL(threads)
activation_kernel(const F f, const ActivationRule rule) {
  with_format(rule.in.forward.element, [&]<class Format>() { activate_rows<F, Gated, Format>(f, rule); });
}

template <class F, bool Gated>
GPU_KERNEL(threads)
activation_gradient_kernel(const F f, const ActivationRule rule) {
  GPU_SHARED_MEMORY(memory);
  auto* sums = reinterpret_cast<float*>(memory);
  with_format(rule.in.forward.element, [&]<class Format>() { add_gradients<F, Gated, Format>(f, rule, sums); });
}

// dbias of the parts.
GPU_KERNEL(sum_threads)
activation_sum_kernel(const ActivationRule rule) {
  GPU_SHARED_MEMORY(memory);
  const auto size = std::int64_t{rule.in.forward.gated ? 2 : 1} * rule.in.forward.width;
  const auto at = gpu::block_index() * gpu::warp_size + lane_index();
  const float sum = sum_of_parts(rule.in.partial, rule.parts, size, at, reinterpret_cast<float*>(memory));
  if (warp_index() == 0 && gpu::within(at < size)) rule.in.dbias[at] = sum;
}

// Calls use.template operator()<Gated>(f) with the function as a type.
template <class Use>
void with_function(const Activation& in, Use use) {
  const auto with_gate = [&](const auto& f) {
    in.gated ? use.template operator()<true>(f) : use.template operator()<false>(f);
  };
  switch (in.function.kind) {
    case ActivationFunction::Kind::gelu:
      return with_gate(Gelu{});
    case ActivationFunction::Kind::gelu_tanh:
      return with_gate(GeluTanh{});
    case ActivationFunction::Kind::relu:
      return with_gate(Relu{});
    case ActivationFunction::Kind::silu:
      return with_gate(Silu{in.function.beta});
    case ActivationFunction::Kind::relu_squared:
      return with_gate(ReluSquared{});
  }
}

// At least 16 rows for each warp, over which it keeps bias and sums; few enough parts to be added.
std::int64_t parts_of(std::int64_t rows) {
  constexpr std::int64_t rows_of_warp = 16, most = 512;
  return std::min(most, blocks_for(rows, rows_of_warp * warps));
}

ActivationRule rule_of(const ActivationBackward& in) {
  const auto& forward = in.forward;
  const auto is_aligned = [&](const void* rows) { return is_aligned_to(rows, bytes_of_four(forward.element)); };
  const bool whole_groups = forward.width % columns_of_lane == 0;
  return {.in = in,
          .parts = parts_of(forward.rows),
          .tiles = static_cast<int>(blocks_for(forward.width, tile_columns)),
          .aligned =
              whole_groups && is_aligned(forward.x) && is_aligned(forward.y) && is_aligned(in.dy) && is_aligned(in.dx),
          .aligned_bias = whole_groups && is_aligned_to(forward.bias, 16)};
}

}  // namespace

std::int64_t activation_partial_sums(std::int64_t rows, std::int64_t width) { return parts_of(rows) * width; }

void activation(const Activation& arguments, void* stream) {
  if (arguments.rows == 0 || arguments.width == 0) return;
  const auto rule = rule_of({.forward = arguments});
  with_function(arguments, [&]<bool Gated, class F>(const F& f) {
    gpu::launch(activation_kernel<F, Gated>, rule.parts * rule.tiles, threads, 0, static_cast<gpu::Stream>(stream), f,
                rule);
  });
}

void activation_backward(const ActivationBackward& arguments, void* stream_pointer) {
  const auto& in = arguments.forward;
  if (in.width == 0) return;
  const auto stream = static_cast<gpu::Stream>(stream_pointer);
  const auto rule = rule_of(arguments);
  if (in.rows > 0)
    with_function(in, [&]<bool Gated, class F>(const F& f) {
      gpu::launch(activation_gradient_kernel<F, Gated>, rule.parts * rule.tiles, threads,
                  static_cast<int>(sizeof(float)) * columns_of_lane * threads, stream, f, rule);
    });
  if (arguments.dbias == nullptr) return;
  gpu::launch(activation_sum_kernel, blocks_for((in.gated ? 2 : 1) * in.width, gpu::warp_size), sum_threads,
              sum_threads * static_cast<int>(sizeof(float)), stream, rule);
}

}  // namespace metaformer::cuda
