#include "cuda/step_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "gpu.h"

namespace metaformer::step_cases {

namespace {

std::size_t bytes_of(cuda::RowElement element) { return element == cuda::RowElement::fp32 ? 4 : 2; }

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace

float draw(std::uint64_t number) {
  auto bits = (number + 1) * 0x9e3779b97f4a7c15ULL;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<float>(static_cast<double>(bits >> 40) * 0x1p-23 - 1);
}

bool KernelArray::is_alone() const {
  const auto is_filled = [this](const unsigned char* from, std::size_t count) {
    return std::all_of(from, from + count, [this](unsigned char byte) { return byte == fill_; });
  };
  const auto used = before_ + count_ * size_;
  return is_filled(memory_.data(), before_) && is_filled(memory_.data() + used, total_ - used);
}

float number_of(cuda::RowElement element, std::uint32_t bits) {
  if (element == cuda::RowElement::fp32) return gpu::float_of(bits);
  const auto half = static_cast<std::uint16_t>(bits);
  return element == cuda::RowElement::bf16 ? gpu::from_bf16(half) : gpu::from_fp16(half);
}

std::uint32_t stored(cuda::RowElement element, float x) {
  if (element == cuda::RowElement::fp32) return gpu::bits_of(x);
  return element == cuda::RowElement::bf16 ? gpu::to_bf16(x) : gpu::to_fp16(x);
}

std::vector<std::int64_t> targets_of(const LossCase& c) {
  if (!c.targets.empty()) return c.targets;
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < c.rows; ++row)
    targets.push_back(row % 3 == 2 ? -1 : (row * 7919 + 3 * c.width / 4) % c.width);
  return targets;
}

std::vector<float> logits_of(const LossCase& c) {
  std::vector<float> logits = c.logits;
  for (std::int64_t i = 0; logits.size() < at(c.rows * c.width); ++i)
    logits.push_back(static_cast<float>(2 * c.spread) * draw(static_cast<std::uint64_t>(i)));
  for (auto& x : logits) x = number_of(c.element, stored(c.element, x));
  return logits;
}

LossResult run_loss(const LossCase& c) {
  const auto bytes = bytes_of(c.element);
  const auto stride = c.width + c.padding;
  const KernelArray logits(bytes, c.rows == 0 ? 0 : at((c.rows - 1) * stride + c.width), c.shift, c.at_the_end);
  const KernelArray gradient(bytes, at(c.rows * c.width), c.gradient_shift, c.at_the_end);
  const auto numbers = logits_of(c);
  for (std::int64_t row = 0; row < c.rows; ++row)
    for (std::int64_t v = 0; v < c.width; ++v)
      logits.set(at(row * stride + v), stored(c.element, numbers[at(row * c.width + v)]));
  const auto list = targets_of(c);
  const KernelMemory targets(list.size() * sizeof(std::int64_t));
  if (!list.empty()) std::memcpy(targets.data(), list.data(), list.size() * sizeof(std::int64_t));
  const KernelArray partial(sizeof(float), at(cuda::cross_entropy_parts(c.rows, c.width)), 0, true);
  const KernelArray loss(sizeof(float), 1, 1), factor({c.factor}), computed({c.computed});
  cuda::cross_entropy({.element = c.element,
                       .logits = logits.data(),
                       .rows = c.rows,
                       .width = c.width,
                       .stride = stride,
                       .targets = reinterpret_cast<const std::int64_t*>(targets.data()),
                       .smoothing = c.smoothing,
                       .loss = c.has_loss ? loss.floats() : nullptr,
                       .partial = c.has_loss ? partial.floats() : nullptr,
                       .gradient = c.has_gradient ? gradient.data() : nullptr,
                       .factor = c.has_gradient ? factor.floats() : nullptr,
                       .computed = c.computed != 0 ? computed.floats() : nullptr},
                      nullptr);
  finish_kernels();
  return {loss.get(0), gradient.bits(), loss.is_alone() && gradient.is_alone()};
}

GradientResult run_gradient_norm(const GradientCase& c) {
  const KernelArray gradients(c.gradients, c.shift, c.at_the_end);
  const auto count = static_cast<std::int64_t>(c.gradients.size());
  const KernelArray partial(sizeof(float), at(cuda::gradient_norm_parts(count)), 0, true);
  const KernelArray divisor({c.divisor}), norm({-1}), found_inf({-1}), factor({-1});
  cuda::gradient_norm({.gradients = gradients.floats(),
                       .count = count,
                       .partial = partial.floats(),
                       .divisor = c.divisor != 0 ? divisor.floats() : nullptr,
                       .norm = norm.floats(),
                       .found_inf = c.divisor != 0 ? found_inf.floats() : nullptr,
                       .factor = c.limit > 0 ? factor.floats() : nullptr,
                       .limit = c.limit},
                      nullptr);
  finish_kernels();
  return {*norm.floats(), *found_inf.floats(), *factor.floats()};
}

namespace {

// The arrays of a range in kernel memory.
struct RangeArrays {
  KernelArray values, gradients, first_moments, second_moments, copies;

  explicit RangeArrays(const RangeCase& c)
      : values(array(c, 0)),
        gradients(array(c, 1)),
        first_moments(array(c, 2)),
        second_moments(array(c, 3)),
        copies(array(c, 4, sizeof(std::uint16_t))) {}

  // Numbers around the elements, not NaN: what is computed from them would have the same bits.
  static KernelArray array(const RangeCase& c, int number, std::size_t size = sizeof(float)) {
    return KernelArray(size, c.count, c.shift + (c.other == number ? 1 : 0), c.at_the_end, 0x3f);
  }

  void fill(std::size_t count, std::uint64_t number, float first_gradient) const {
    for (std::size_t i = 0; i < count; ++i) {
      const auto random = [&](std::uint64_t kind) { return draw(4 * (number * 100'000 + i) + kind); };
      values.floats()[i] = random(0);
      gradients.floats()[i] = i == 0 ? random(1) * first_gradient : random(1);
      first_moments.floats()[i] = 0.3F * random(2);
      second_moments.floats()[i] = 0.2F * random(3) * random(3);
    }
  }
  AdamResult::Range read() const {
    return {values.values(), first_moments.values(), second_moments.values(), gradients.values(), copies.bits()};
  }
  bool are_alone() const {
    return values.is_alone() && gradients.is_alone() && first_moments.is_alone() && second_moments.is_alone() &&
           copies.is_alone();
  }
};

}  // namespace

AdamResult run_adam(const AdamCase& c) {
  AdamResult result;
  std::vector<std::unique_ptr<RangeArrays>> arrays;
  std::vector<cuda::AdamRange> ranges;
  for (const auto& range : c.ranges) {
    const auto& made = *arrays.emplace_back(std::make_unique<RangeArrays>(range));
    made.fill(range.count, arrays.size(), c.first_gradient);
    result.before.push_back(made.read());
    ranges.push_back({.values = made.values.floats(),
                      .gradients = made.gradients.floats(),
                      .first_moments = made.first_moments.floats(),
                      .second_moments = made.second_moments.floats(),
                      .copies = c.copies ? reinterpret_cast<std::uint16_t*>(made.copies.data()) : nullptr,
                      .count = static_cast<std::int64_t>(range.count),
                      .weight_decay = range.weight_decay,
                      .rate = range.rate});
  }
  const KernelArray steps({c.steps}), rate({c.step.given_rate}), factor({c.factor}), divisor({c.divisor}),
      found_inf({c.found_inf}), constants(sizeof(float), 3, 0, true);
  auto step = c.step;
  step.steps = steps.floats();
  step.constants = constants.floats();
  if (c.rate_in_memory) {
    step.learning_rate = rate.floats();
    step.given_rate = NAN;
  }
  if (c.factor != 0) step.factor = factor.floats();
  if (c.divisor != 0) step.divisor = divisor.floats();
  if (c.found_inf != -1) step.found_inf = found_inf.floats();
  cuda::adam_step(step, ranges.data(), static_cast<std::int64_t>(ranges.size()), nullptr);
  finish_kernels();
  result.steps = *steps.floats();
  for (const auto& made : arrays) {
    result.after.push_back(made->read());
    result.is_alone = result.is_alone && made->are_alone();
  }
  return result;
}

std::vector<std::uint32_t> run_step_kernels() {
  std::vector<std::uint32_t> all;
  const auto add = [&](const std::vector<float>& x) {
    for (const float value : x) all.push_back(std::bit_cast<std::uint32_t>(value));
  };
  using cuda::RowElement;
  for (const auto& c : std::vector<LossCase>{
           {.element = RowElement::bf16, .rows = 11, .width = 65, .smoothing = 0.1, .at_the_end = true},
           {.element = RowElement::bf16, .rows = 9, .width = 41, .padding = 7, .shift = 3, .gradient_shift = 3},
           {.element = RowElement::fp16, .rows = 2, .width = 1130, .smoothing = 0.1, .at_the_end = true},
           {.rows = 2, .width = 3, .targets = {3, -1}},
           {.rows = 3, .width = 1037, .padding = 2, .spread = 20, .gradient_shift = 1}}) {
    const auto result = run_loss(c);
    all.push_back(result.loss);
    all.push_back(result.is_alone);
    all.insert(all.end(), result.gradient.begin(), result.gradient.end());
  }
  std::vector<float> gradients;
  for (std::uint64_t i = 0; i < 20'011; ++i) gradients.push_back(draw(i));
  for (const std::size_t shift : {0, 1}) {
    const auto result =
        run_gradient_norm({.gradients = gradients, .shift = shift, .at_the_end = true, .limit = 0.5, .divisor = 8});
    add({result.norm, result.found_inf, result.factor});
  }
  const auto aligned = run_gradient_norm({.gradients = gradients});
  add({aligned.norm, aligned.found_inf, aligned.factor});
  AdamCase adam{.ranges = {{.count = 2052, .weight_decay = 0.1F},
                           {.count = 2049, .at_the_end = true},
                           {.count = 37, .shift = 1, .rate = 0.5F},
                           {.count = 36, .other = 4},
                           {.count = 21}},
                .steps = 3,
                .factor = 0.3F,
                .copies = true};
  for (const auto element : {cuda::RowElement::bf16, cuda::RowElement::fp16}) {
    adam.step.copy_element = element;
    const auto result = run_adam(adam);
    add({result.steps, result.is_alone ? 1.0F : 0.0F});
    for (const auto& range : result.after) {
      add(range.values);
      add(range.first_moments);
      add(range.second_moments);
      all.insert(all.end(), range.copies.begin(), range.copies.end());
    }
  }
  return all;
}

}  // namespace metaformer::step_cases
