#include <algorithm>

#include "base/error.h"
#include "cuda/adam.h"
#include "cuda/fragments.h"

namespace metaformer::cuda {

namespace {

constexpr int threads = 256, groups = 2;  // groups of four elements for each thread
constexpr std::int64_t block_size = 4 * groups * threads;

// The ranges of one kernel, which reads them among its arguments.
struct AdamRanges {
  static constexpr int most = 32;
  AdamRange list[most];
  std::int64_t end[most] = {};  // the number of the block after the range's last block
  bool is_aligned[most] = {};   // all arrays, to four elements
  int count = 0;
};

// base^exponent for a whole exponent. Squares have few rounding errors: log2(exponent).
GPU_DEVICE double whole_power(double base, std::int64_t exponent) {
  double power = 1;
  GPU_DO_NOT_UNROLL
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) power *= base;
  return power;
}

// The numbers of a step that are equal for all weights.
struct AdamConstants {
  float learning_rate, first_correction, second_correction_root;
};

GPU_KERNEL(gpu::warp_size) adam_constants_kernel(const AdamStep in) {
  if (gpu::thread_index() != 0) return;
  const float steps = *in.steps + (in.found_inf == nullptr ? 1 : 1 - *in.found_inf);
  const auto t = static_cast<std::int64_t>(steps);
  *in.steps = steps;
  in.constants[0] = in.learning_rate == nullptr ? in.given_rate : *in.learning_rate;
  in.constants[1] = static_cast<float>(1 - whole_power(static_cast<double>(in.beta1), t));
  in.constants[2] = gpu::square_root(static_cast<float>(1 - whole_power(static_cast<double>(in.beta2), t)));
}

struct Weight {
  float value, first_moment, second_moment;
};

GPU_DEVICE void update(Weight& w, float gradient, const AdamStep& in, const AdamRange& range,
                       const AdamConstants& constants) {
  const float rate = constants.learning_rate * range.rate, step_size = rate / constants.first_correction;
  if (range.weight_decay != 0) {
    if (in.decoupled) {
      w.value -= rate * range.weight_decay * w.value;
    } else {
      gradient += range.weight_decay * w.value;
    }
  }
  const float square = gradient * gradient;
  w.first_moment =
      gpu::fused_multiply_add(in.beta1, w.first_moment, gpu::fused_multiply_add(-in.beta1, gradient, gradient));
  w.second_moment =
      gpu::fused_multiply_add(in.beta2, w.second_moment, gpu::fused_multiply_add(-in.beta2, square, square));
  const float root = gpu::square_root(w.second_moment) / constants.second_correction_root + in.epsilon;
  w.value -= step_size * w.first_moment / root;
}

// Four weights and their gradients, as they lie in memory.
struct WeightGroup {
  unsigned values[4], gradients[4], first_moments[4], second_moments[4];

  // `count`: weights that exist; `whole`: all do, and are aligned.
  GPU_DEVICE void load(const AdamRange& range, std::int64_t first, std::int64_t count, bool whole) {
    load_four(values, range.values + first, count, whole);
    load_four(gradients, range.gradients + first, count, whole);
    load_four(first_moments, range.first_moments + first, count, whole);
    load_four(second_moments, range.second_moments + first, count, whole);
  }
  GPU_DEVICE void store(const AdamRange& range, std::int64_t first, std::int64_t count, bool whole) const {
    store_four(range.values + first, values, count, whole);
    store_four(range.first_moments + first, first_moments, count, whole);
    store_four(range.second_moments + first, second_moments, count, whole);
  }
  template <class Format>
  GPU_DEVICE void store_copies(std::uint16_t* copies, std::int64_t count, bool whole) const {
    float x[4];
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) x[i] = gpu::float_of(values[i]);
    if (whole) return gpu::store_8(copies, pack<Format>(x[0], x[1]), pack<Format>(x[2], x[3]));
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      if (gpu::within(i < count)) copies[i] = Format::from_float(x[i]);
  }

 private:
  static GPU_DEVICE void load_four(unsigned (&words)[4], const float* x, std::int64_t count, bool whole) {
    if (whole) return gpu::load_16(words, x);
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = gpu::within(i < count) ? gpu::bits_of(x[i]) : 0;
  }
  static GPU_DEVICE void store_four(float* x, const unsigned (&words)[4], std::int64_t count, bool whole) {
    if (whole) return gpu::store_16(x, words);
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      if (gpu::within(i < count)) x[i] = gpu::float_of(words[i]);
  }
};

// `scale`: of the gradients, before their division by `divisor`.
GPU_DEVICE void update(WeightGroup& group, const AdamStep& in, const AdamRange& range, const AdamConstants& constants,
                       float scale, float divisor) {
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    Weight w{gpu::float_of(group.values[i]), gpu::float_of(group.first_moments[i]),
             gpu::float_of(group.second_moments[i])};
    update(w, gpu::float_of(group.gradients[i]) * scale / divisor, in, range, constants);
    group.values[i] = gpu::bits_of(w.value);
    group.first_moments[i] = gpu::bits_of(w.first_moment);
    group.second_moments[i] = gpu::bits_of(w.second_moment);
  }
}

GPU_KERNEL(threads) adam_kernel(const AdamStep in, const AdamRanges ranges) {
  if (in.found_inf != nullptr && *in.found_inf == 1) return;
  const auto block = gpu::block_index();
  int r = 0;
  while (block >= ranges.end[r]) ++r;
  const auto& range = ranges.list[r];
  const auto before = r == 0 ? 0 : ranges.end[r - 1];
  const AdamConstants constants{in.constants[0], in.constants[1], in.constants[2]};
  const float scale = in.factor == nullptr ? 1 : *in.factor, divisor = in.divisor == nullptr ? 1 : *in.divisor;
  const bool is_aligned = gpu::aligned(ranges.is_aligned[r]);
  WeightGroup group[groups];
  const auto first_of = [&](int g) {
    return (block - before) * block_size + 4 * (std::int64_t{g} * threads + gpu::thread_index());
  };
  const auto is_whole = [&](int g) { return is_aligned && gpu::within(range.count - first_of(g) >= 4); };
  GPU_UNROLL
  for (int g = 0; g < groups; ++g) group[g].load(range, first_of(g), range.count - first_of(g), is_whole(g));
  GPU_UNROLL
  for (int g = 0; g < groups; ++g) {
    update(group[g], in, range, constants, scale, divisor);
    const auto first = first_of(g), count = range.count - first;
    group[g].store(range, first, count, is_whole(g));
    if (range.copies == nullptr) continue;
    if (in.copy_element == RowElement::bf16)
      group[g].store_copies<Bf16>(range.copies + first, count, is_whole(g));
    else
      group[g].store_copies<Fp16>(range.copies + first, count, is_whole(g));
  }
}

// To the bytes of four elements.
bool is_aligned(const AdamRange& range) {
  const auto is_multiple = [](const auto* x) { return reinterpret_cast<std::uintptr_t>(x) % (4 * sizeof *x) == 0; };
  return is_multiple(range.values) && is_multiple(range.gradients) && is_multiple(range.first_moments) &&
         is_multiple(range.second_moments) && is_multiple(range.copies);
}

AdamRanges arguments_of(const AdamRange* ranges, std::int64_t count) {
  AdamRanges arguments;
  std::int64_t blocks = 0;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, AdamRanges::most); ++i) {
    const auto& range = ranges[i];
    blocks += (range.count + block_size - 1) / block_size;
    arguments.list[i] = range;
    arguments.end[i] = blocks;
    arguments.is_aligned[i] = is_aligned(range);
    arguments.count = static_cast<int>(i + 1);
  }
  return arguments;
}

}  // namespace

void adam_step(const AdamStep& step, const AdamRange* ranges, std::int64_t count, void* given_stream) {
  if (step.copy_element == RowElement::fp32) throw Error(ExitCode::failure, "Adam kernel: copies in fp32");
  auto* stream = static_cast<gpu::Stream>(given_stream);
  gpu::launch(adam_constants_kernel, 1, gpu::warp_size, 0, stream, step);
  for (std::int64_t i = 0; i < count; i += AdamRanges::most) {
    const auto arguments = arguments_of(ranges + i, count - i);
    const auto blocks = arguments.end[arguments.count - 1];
    if (blocks > 0) gpu::launch(adam_kernel, blocks, threads, 0, stream, step, arguments);
  }
}

}  // namespace metaformer::cuda
