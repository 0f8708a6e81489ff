// The source of the CUDA kernels of the residual sum and norm, compiled for the emulator or for a GPU, against the
// formulas in float64. Bounds follow from the roundings of the types; x' and the mask are exact.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "cpu/dropout.h"
#include "cuda/kernel_memory.h"
#include "cuda/residual_norm.h"
#include "gpu.h"
#include "support/catch.h"

namespace metaformer::test_residual_norm_kernel {

namespace {

using cuda::RowElement;

constexpr double float_roundoff = 0x1p-24;
constexpr std::uint64_t key = 0x9876543210abcdefULL, number = 3;
constexpr std::int64_t first_row = 9;

double roundoff_of(RowElement element) {
  return element == RowElement::fp32 ? float_roundoff : element == RowElement::bf16 ? 0x1p-8 : 0x1p-11;
}
// The bound of an error after a number is rounded. The smallest numbers of fp16 are 2^-24 apart.
double with_rounding(RowElement element, double bound, double number) {
  return bound + roundoff_of(element) * (std::fabs(number) + bound) + (element == RowElement::fp16 ? 0x1p-25 : 0);
}
float rounded_to(RowElement element, float x) {
  if (element == RowElement::fp32) return x;
  return element == RowElement::bf16 ? gpu::from_bf16(gpu::to_bf16(x)) : gpu::from_fp16(gpu::to_fp16(x));
}
std::size_t bytes_of(RowElement element) { return element == RowElement::fp32 ? 4 : 2; }

// Numbers in memory for the kernels. They end `behind` numbers before a page without access, whose bytes stay 0xff.
class Numbers {
 public:
  Numbers(RowElement element, std::int64_t count, std::int64_t behind = 0)
      : element_(element),
        count_(static_cast<std::size_t>(count)),
        behind_(static_cast<std::size_t>(behind) * bytes_of(element)),
        memory_(count_ * bytes_of(element) + behind_) {}

  void* data() const { return memory_.data(); }
  float* floats() const { return memory_.floats(); }
  void set(std::int64_t i, double value) const {
    const auto x = static_cast<float>(value);
    if (element_ == RowElement::fp32) return put(i, x);
    put(i, element_ == RowElement::bf16 ? gpu::to_bf16(x) : gpu::to_fp16(x));
  }
  double get(std::int64_t i) const {
    if (element_ == RowElement::fp32) return static_cast<double>(at<float>(i));
    const auto bits = at<std::uint16_t>(i);
    return static_cast<double>(element_ == RowElement::bf16 ? gpu::from_bf16(bits) : gpu::from_fp16(bits));
  }
  // Whether the bytes behind the numbers are unchanged.
  bool is_alone() const {
    const auto* end = memory_.data() + count_ * bytes_of(element_);
    return std::all_of(end, end + behind_, [](unsigned char byte) { return byte == 0xff; });
  }
  std::vector<unsigned char> bytes() const { return {memory_.data(), memory_.data() + count_ * bytes_of(element_)}; }

 private:
  template <class T>
  void put(std::int64_t i, T x) const {
    std::memcpy(memory_.data() + static_cast<std::size_t>(i) * sizeof(T), &x, sizeof(T));
  }
  template <class T>
  T at(std::int64_t i) const {
    T x;
    std::memcpy(&x, memory_.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return x;
  }

  RowElement element_;
  std::size_t count_, behind_;
  KernelMemory memory_;
};

struct Case {
  std::int64_t rows = 11;
  int width = 65;
  RowElement y = RowElement::bf16, n = RowElement::bf16;
  bool centred = true, has_bias = true, has_x = true, has_dsum = true;
  double probability = 0.3;
  std::int64_t rows_of_run = 3;  // rows of the kernel in a row of the batch
  double offset = 0.5;           // of the mean of x
  // Numbers behind each array, so that its start is aligned otherwise.
  std::int64_t behind_x = 0, behind_y = 0, behind_n = 0, behind_gain = 0, behind_bias = 0;

  std::int64_t count() const { return rows * width; }
};

std::string describe(const Case& c) {
  return "rows " + std::to_string(c.rows) + ", width " + std::to_string(c.width) + ", types " +
         std::to_string(static_cast<int>(c.y)) + " " + std::to_string(static_cast<int>(c.n)) +
         (c.centred ? ", layer norm" : ", RMS norm") + (c.has_bias ? ", bias" : "") + (c.has_x ? "" : ", no x") +
         (c.has_dsum ? "" : ", no dsum") + ", dropout " + std::to_string(c.probability) + ", behind " +
         std::to_string(c.behind_x) + " " + std::to_string(c.behind_y) + " " + std::to_string(c.behind_n) + " " +
         std::to_string(c.behind_gain) + " " + std::to_string(c.behind_bias);
}

// Everything that both kernels read and write.
struct Arrays {
  Numbers x, y, gain, bias, sum, n, mean, factor, dn, dsum, dx, dy, dgain, dbias, partial;
  KernelMemory key_memory{sizeof(key)};

  explicit Arrays(const Case& c)
      : x(RowElement::fp32, c.count(), c.behind_x),
        y(c.y, c.count(), c.behind_y),
        gain(RowElement::fp32, c.width, c.behind_gain),
        bias(RowElement::fp32, c.width, c.behind_bias),
        sum(RowElement::fp32, c.count(), c.behind_x),
        n(c.n, c.count(), c.behind_n),
        mean(RowElement::fp32, c.rows),
        factor(RowElement::fp32, c.rows),
        dn(c.n, c.count(), c.behind_n),
        dsum(RowElement::fp32, c.count(), c.behind_x),
        dx(RowElement::fp32, c.count(), c.behind_x),
        dy(c.y, c.count(), c.behind_y),
        dgain(RowElement::fp32, c.width, c.behind_gain),
        dbias(RowElement::fp32, c.width, c.behind_bias),
        partial(RowElement::fp32, cuda::residual_norm_partial_sums(c.rows, c.width)) {
    const Rng rng(7, RandomPurpose::evaluation);
    std::uint64_t draws = 0;
    const auto draw = [&] { return 2 * rng.uniform(draws++) - 1; };
    for (std::int64_t i = 0; i < c.count(); ++i) {
      x.set(i, c.offset + 2 * draw());
      y.set(i, 1.5 * draw());
      dn.set(i, draw());
      dsum.set(i, draw());
    }
    for (std::int64_t i = 0; i < c.width; ++i) {
      gain.set(i, 1 + 0.5 * draw());
      bias.set(i, draw());
    }
    std::memcpy(key_memory.data(), &key, sizeof(key));
  }

  bool are_alone() const {
    const auto all = {&sum, &n, &dx, &dy, &dgain, &dbias};
    return std::all_of(all.begin(), all.end(), [](const Numbers* each) { return each->is_alone(); });
  }
};

constexpr float epsilon = 1e-3F;

cuda::ResidualNorm arguments_of(const Case& c, const Arrays& a) {
  return {.rows = c.rows,
          .width = c.width,
          .y_element = c.y,
          .n_element = c.n,
          .x = c.has_x ? a.x.floats() : nullptr,
          .y = a.y.data(),
          .probability = c.probability,
          .key = c.probability > 0 ? reinterpret_cast<const std::int64_t*>(a.key_memory.data()) : nullptr,
          .number = number,
          .places = {.run = c.rows_of_run * c.width, .first_row = first_row},
          .centred = c.centred,
          .epsilon = epsilon,
          .gain = a.gain.floats(),
          .bias = c.has_bias ? a.bias.floats() : nullptr,
          .sum = a.sum.floats(),
          .n = a.n.data(),
          .mean = c.centred ? a.mean.floats() : nullptr,
          .factor = a.factor.floats()};
}

cuda::ResidualNormBackward backward_of(const Case& c, const Arrays& a) {
  auto forward = arguments_of(c, a);
  forward.x = nullptr;
  forward.y = nullptr;
  forward.n = nullptr;
  return {.forward = forward,
          .dn = a.dn.data(),
          .dsum = c.has_dsum ? a.dsum.floats() : nullptr,
          .dx = c.has_x ? a.dx.floats() : nullptr,
          .dy = a.dy.data(),
          .dgain = a.dgain.floats(),
          .dbias = c.has_bias ? a.dbias.floats() : nullptr,
          .partial = a.partial.floats()};
}

void run(const Case& c, const Arrays& a) {
  cuda::residual_norm(arguments_of(c, a), nullptr);
  cuda::residual_norm_backward(backward_of(c, a), nullptr);
  finish_kernels();
}

// The factor of dropout: 0 or 1 / (1 - probability). By the CPU's mask, one entry at a time.
class Mask {
 public:
  explicit Mask(const Case& c) : c_(c), mask_(c.probability, Rng::with_key(key).bits(number)) {}

  float applied(std::int64_t row, int column, float value) const {
    if (c_.probability == 0) return value;
    const auto place = ((first_row + row / c_.rows_of_run) << 40) + row % c_.rows_of_run * c_.width + column;
    float left = 0;
    mask_.apply(&value, &left, 1, place);
    return left;
  }

 private:
  const Case& c_;
  DropoutMask mask_;
};

// x', with the roundings of the dropout kernel and of a sum in float32.
float sum_of(const Case& c, const Arrays& a, const Mask& mask, std::int64_t row, int column) {
  const auto i = row * c.width + column;
  const auto y = rounded_to(c.y, mask.applied(row, column, static_cast<float>(a.y.get(i))));
  return (c.has_x ? static_cast<float>(a.x.get(i)) : 0.0F) + y;
}

// The largest number of float32 additions through which a number goes, with a few other operations.
double operations(int width) { return 16 + static_cast<double>(width) / 16; }

// A row in float64: z, and a bound of the error of z in float32.
struct Row {
  double mean = 0, factor = 0;
  std::vector<double> z, error;

  Row(const Case& c, const Arrays& a, std::int64_t row) {
    const auto x = [&](int column) { return a.sum.get(row * c.width + column); };
    double size = 0, squares = 0;
    for (int i = 0; i < c.width; ++i) {
      if (c.centred) mean += x(i) / c.width;
      size += std::fabs(x(i)) / c.width;
    }
    for (int i = 0; i < c.width; ++i) squares += (x(i) - mean) * (x(i) - mean) / c.width;
    factor = 1 / std::sqrt(squares + static_cast<double>(epsilon));
    const auto unit = float_roundoff * operations(c.width);
    for (int i = 0; i < c.width; ++i) {
      z.push_back((x(i) - mean) * factor);
      const auto of_mean = c.centred ? size * factor : 0;  // an error of the mean also changes the factor
      error.push_back(unit * (of_mean + std::fabs(z.back()) * (1 + of_mean)));
    }
  }
};

void check_forward(const Case& c, const Arrays& a) {
  const Mask mask(c);
  bool same_sums = true, near = true;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    for (int i = 0; i < c.width; ++i)
      same_sums = same_sums && a.sum.get(row * c.width + i) == static_cast<double>(sum_of(c, a, mask, row, i));
    const Row exact(c, a, row);
    const auto unit = float_roundoff * operations(c.width);
    near = near && std::fabs(static_cast<double>(a.factor.floats()[row]) - exact.factor) <=
                       unit * exact.factor * (1 + exact.factor * std::fabs(exact.mean));
    for (int i = 0; i < c.width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto gain = a.gain.get(i), bias = c.has_bias ? a.bias.get(i) : 0;
      const auto n = exact.z[at] * gain + bias;
      const auto bound = std::fabs(gain) * exact.error[at] + 4 * float_roundoff * (std::fabs(bias) + std::fabs(n));
      near = near && std::fabs(a.n.get(row * c.width + i) - n) <= with_rounding(c.n, bound, n);
    }
  }
  CHECK(same_sums);
  CHECK(near);
}

void check_backward(const Case& c, const Arrays& a) {
  const Mask mask(c);
  const auto width = static_cast<std::size_t>(c.width);
  std::vector<double> dgain(width), dbias(width), gain_bound(width), bias_bound(width);
  const auto unit = float_roundoff * operations(c.width);
  bool near = true;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const Row exact(c, a, row);
    std::vector<double> h(width);
    double along = 0, shift = 0, size = 0, along_size = 0, along_error = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const auto dn = a.dn.get(row * c.width + static_cast<std::int64_t>(i));
      h[i] = dn * a.gain.get(static_cast<std::int64_t>(i));
      along += h[i] * exact.z[i] / c.width;
      along_size += std::fabs(h[i] * exact.z[i]) / c.width;
      along_error += std::fabs(h[i]) * exact.error[i] / c.width;
      if (c.centred) shift += h[i] / c.width;
      size += std::fabs(h[i]) / c.width;
      dgain[i] += dn * exact.z[i];
      dbias[i] += dn;
      gain_bound[i] += std::fabs(dn) * exact.error[i] +
                       float_roundoff * (40 + static_cast<double>(c.rows)) * std::fabs(dn * exact.z[i]);
      bias_bound[i] += float_roundoff * (40 + static_cast<double>(c.rows)) * std::fabs(dn);
    }
    for (int i = 0; i < c.width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto place = row * c.width + i;
      const auto dsum = c.has_dsum ? a.dsum.get(place) : 0, z = exact.z[at], inner = h[at] - along * z - shift;
      const auto dx = dsum + exact.factor * inner;
      // The last term is for the error of the factor.
      const auto terms = std::fabs(h[at]) + std::fabs(z) * along_size + size;
      const auto bound = unit * (std::fabs(dsum) + exact.factor * terms) +
                         exact.factor * (std::fabs(z) * along_error + along_size * exact.error[at]) +
                         unit * exact.factor * std::fabs(inner) * (1 + exact.factor * std::fabs(exact.mean));
      if (c.has_x) near = near && std::fabs(a.dx.get(place) - dx) <= bound;
      const double factor = static_cast<double>(mask.applied(row, i, 1));
      const auto dy_bound = factor * bound + 2 * float_roundoff * factor * std::fabs(dx);
      near = near && std::fabs(a.dy.get(place) - factor * dx) <= with_rounding(c.y, dy_bound, factor * dx);
    }
  }
  for (std::size_t i = 0; i < width; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    near = near && std::fabs(a.dgain.get(at) - dgain[i]) <= gain_bound[i];
    if (c.has_bias) near = near && std::fabs(a.dbias.get(at) - dbias[i]) <= bias_bound[i];
  }
  CHECK(near);
}

void check(const Case& c) {
  INFO(describe(c));
  const Arrays a(c);
  run(c, a);
  check_forward(c, a);
  check_backward(c, a);
  CHECK(a.are_alone());
}

// The types of y and n that a model has, and others.
struct Types {
  RowElement y, n;
};
const std::vector<Types> all_types = {{RowElement::fp32, RowElement::fp32}, {RowElement::bf16, RowElement::bf16},
                                      {RowElement::fp16, RowElement::fp16}, {RowElement::bf16, RowElement::fp32},
                                      {RowElement::fp32, RowElement::bf16}, {RowElement::fp16, RowElement::fp32},
                                      {RowElement::fp32, RowElement::fp16}, {RowElement::bf16, RowElement::fp16}};

constexpr int widths[] = {1, 2, 3, 4, 5, 31, 64, 65, 127, 128, 129, 132, 256, 384, 516, 1000, 1024, 1025, 1028, 2052};

}  // namespace

TEST_CASE("the kernels of residual sum and norm are as accurate as their types", "[residual_norm]") {
  const auto types = GENERATE(from_range(all_types));
  const bool centred = GENERATE(true, false);
  choose_schedule(static_cast<std::uint64_t>(types.y) + 3 * static_cast<std::uint64_t>(types.n));
  for (const auto width : widths)
    check({.width = width, .y = types.y, .n = types.n, .centred = centred, .has_bias = centred});
}

TEST_CASE("the kernels of residual sum and norm take every number of rows", "[residual_norm]") {
  const std::int64_t rows = GENERATE(0, 1, 2, 7, 8, 9, 33);
  for (const auto width : {1, 65, 384, 1100}) check({.rows = rows, .width = width});
}

TEST_CASE("the kernels of residual sum and norm take wide rows", "[residual_norm]") {
  const int width = GENERATE(1600, 2049, 4095, 4096);
  check({.rows = 3, .width = width});
}

TEST_CASE("residual connection, dropout, bias and the gradient of the sum may be absent", "[residual_norm]") {
  const auto types = GENERATE(from_range(all_types));
  for (const double probability : {0.0, 0.3})
    for (const bool has_x : {true, false})
      for (const bool has_dsum : {true, false})
        for (const bool has_bias : {true, false})
          check({.rows = 9,
                 .width = 68,
                 .y = types.y,
                 .n = types.n,
                 .has_bias = has_bias,
                 .has_x = has_x,
                 .has_dsum = has_dsum,
                 .probability = probability});
}

TEST_CASE("rows of the kernels may start at any address", "[residual_norm]") {
  const auto types = GENERATE(from_range(all_types));
  for (const auto width : {64, 65, 384, 1028})
    for (std::int64_t behind = 0; behind < 4; ++behind) {
      const Case c{.rows = 8, .width = width, .y = types.y, .n = types.n};
      auto all = c, x = c, y = c, n = c, gain = c, bias = c;
      all.behind_x = all.behind_y = all.behind_n = all.behind_gain = all.behind_bias = behind;
      x.behind_x = behind;
      y.behind_y = behind;
      n.behind_n = behind;
      gain.behind_gain = behind;
      bias.behind_bias = behind;
      for (const auto& each : {all, x, y, n, gain, bias}) check(each);
    }
}

TEST_CASE("a mean that is large beside the deviations costs no more than its own rounding", "[residual_norm]") {
  const double offset = GENERATE(100.0, -1000.0);
  for (const auto width : {65, 384, 1100})
    check({.width = width, .y = RowElement::fp32, .n = RowElement::fp32, .offset = offset});
}

TEST_CASE("sums of a gain's gradient over many rows are as accurate as float32", "[residual_norm]") {
  // More rows than the teams of all parts have, so that every team adds several rows.
  check({.rows = 512 * 8 + 11, .width = 3, .rows_of_run = 100});
  check({.rows = 515, .width = 1030, .rows_of_run = 100});
}

TEST_CASE("no order of execution changes a bit of residual sum and norm", "[residual_norm]") {
  for (const auto width : {65, 384, 1100}) {
    const Case c{.rows = 29, .width = width};
    std::vector<std::vector<unsigned char>> expected;
    for (std::uint64_t turn = 0; turn < 9; ++turn) {
      choose_schedule(turn);
      const Arrays a(c);
      run(c, a);
      std::vector<std::vector<unsigned char>> given;
      for (const auto* each : {&a.sum, &a.n, &a.mean, &a.factor, &a.dx, &a.dy, &a.dgain, &a.dbias})
        given.push_back(each->bytes());
      if (turn == 0) expected = given;
      CHECK(given == expected);
    }
  }
}

TEST_CASE("a row of infinities or NaN changes no other row", "[residual_norm]") {
  const Case c{.rows = 9, .width = 130, .y = RowElement::fp32, .n = RowElement::fp32, .probability = 0};
  const Arrays clean(c), spoilt(c);
  spoilt.x.set(4 * c.width + 7, std::numeric_limits<double>::quiet_NaN());
  run(c, clean);
  run(c, spoilt);
  bool same = true;
  for (std::int64_t i = 0; i < c.count(); ++i) {
    if (i / c.width == 4) {
      same = same && std::isnan(spoilt.n.get(i)) && std::isnan(spoilt.dx.get(i));
    } else {
      same = same && spoilt.n.get(i) == clean.n.get(i) && spoilt.dx.get(i) == clean.dx.get(i);
    }
  }
  CHECK(same);
}

TEST_CASE("gradients that nobody needs are not stored", "[residual_norm]") {
  const Case c{.rows = 9, .width = 66};
  const Arrays a(c), all(c);
  run(c, all);
  cuda::residual_norm(arguments_of(c, a), nullptr);
  auto backward = backward_of(c, a);
  backward.dy = nullptr;
  backward.dgain = backward.dbias = nullptr;
  backward.partial = nullptr;
  cuda::residual_norm_backward(backward, nullptr);
  finish_kernels();
  CHECK(a.dx.bytes() == all.dx.bytes());
  for (const auto* untouched : {&a.dy, &a.dgain, &a.dbias, &a.partial}) {
    const auto bytes = untouched->bytes();
    CHECK(std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == 0xff; }));
  }
}

TEST_CASE("a width without a kernel is an error", "[residual_norm]") {
  for (const auto width : {0, cuda::most_norm_width + 1})
    CHECK_THROWS_WITH(cuda::residual_norm({.rows = 1, .width = width}, nullptr), ContainsSubstring("the width"));
}

}  // namespace metaformer::test_residual_norm_kernel
