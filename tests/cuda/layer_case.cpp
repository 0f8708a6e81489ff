#include "cuda/layer_case.h"

#include <bit>
#include <cmath>

namespace metaformer::layer_cases {

using step_cases::draw;
using step_cases::KernelArray;
using step_cases::number_of;
using step_cases::stored;

namespace {

using Kind = ActivationFunction::Kind;

std::size_t bytes_of(RowElement element) { return element == RowElement::fp32 ? 4 : 2; }

std::vector<float> drawn(RowElement element, std::size_t count, float spread, std::uint64_t number) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i)
    x[i] = number_of(element, stored(element, spread * draw(number * 1'000'003 + i)));
  return x;
}

class RowArray : public KernelArray {
 public:
  RowArray(RowElement element, std::size_t count, const Place& place)
      : KernelArray(bytes_of(element), count, place.shift, place.at_the_end) {}
  RowArray(RowElement element, const std::vector<float>& x, const Place& place) : RowArray(element, x.size(), place) {
    for (std::size_t i = 0; i < x.size(); ++i) set(i, stored(element, x[i]));
  }
};

}  // namespace

ActivationInputs inputs_of(const ActivationCase& c) {
  const auto rows = static_cast<std::size_t>(c.rows), width = static_cast<std::size_t>(c.width);
  auto inputs = ActivationInputs{.x = drawn(c.element, rows * c.x_width(), 6, 1),
                                 .bias = drawn(RowElement::fp32, c.x_width(), 2, 2),
                                 .dy = drawn(c.element, rows * width, 2, 3)};
  if (!c.x.empty()) inputs.x = c.x;
  if (!c.has_bias) inputs.bias.assign(c.x_width(), 0);
  return inputs;
}

ActivationResult run_activation(const ActivationCase& c) {
  const auto inputs = inputs_of(c);
  const RowArray x(c.element, inputs.x, c.place), dy(c.element, inputs.dy, c.place),
      bias(RowElement::fp32, inputs.bias, c.place), y(c.element, inputs.dy.size(), c.place),
      dx(c.element, inputs.x.size(), c.place), dbias(RowElement::fp32, inputs.bias.size(), c.place);
  const KernelArray partial(
      4, static_cast<std::size_t>(cuda::activation_partial_sums(c.rows, static_cast<std::int64_t>(c.x_width()))), 0,
      /*at_the_end=*/true);
  cuda::Activation forward{.function = c.function,
                           .gated = c.gated,
                           .element = c.element,
                           .rows = c.rows,
                           .width = c.width,
                           .x = x.data(),
                           .bias = c.has_bias ? bias.floats() : nullptr,
                           .y = y.data()};
  cuda::activation(forward, nullptr);
  forward.y = nullptr;
  cuda::activation_backward({.forward = forward,
                             .dy = dy.data(),
                             .dx = c.has_dx ? dx.data() : nullptr,
                             .dbias = c.has_dbias ? dbias.floats() : nullptr,
                             .partial = c.has_dbias ? partial.floats() : nullptr},
                            nullptr);
  finish_kernels();
  return {y.bits(), dx.bits(), dbias.values(), y.is_alone() && dx.is_alone() && dbias.is_alone()};
}

RotaryInputs inputs_of(const RotaryCase& c) {
  const auto pairs = static_cast<std::size_t>(c.tokens * c.pairs);
  RotaryInputs inputs{.x = drawn(c.element, c.rows() * static_cast<std::size_t>(c.width), 3, 4),
                      .cosines = std::vector<float>(pairs),
                      .sines = std::vector<float>(pairs)};
  for (std::size_t i = 0; i < pairs; ++i) {
    const float angle = 3 * draw(i);
    inputs.cosines[i] = std::cos(angle);
    inputs.sines[i] = std::sin(angle);
  }
  return inputs;
}

namespace {

// Elements of the case's tensors in memory, and where they lie.
struct RotaryLayout {
  cuda::HeadStrides strides;
  std::size_t count;

  explicit RotaryLayout(const RotaryCase& c) {
    const std::int64_t row = c.width, of_token = c.heads * row + c.gap, of_head = c.tokens * row;
    strides = c.by_token ? cuda::HeadStrides{.text = c.tokens * of_token, .head = row, .token = of_token}
                         : cuda::HeadStrides{.text = c.heads * of_head, .head = of_head, .token = row};
    const auto all = c.texts * strides.text - (c.by_token ? c.gap : 0);
    count = c.rows() == 0 ? 0 : static_cast<std::size_t>(all);
  }

  // use(index in [b, n, c, k], index in memory).
  template <class Use>
  void for_each(const RotaryCase& c, Use use) const {
    std::size_t i = 0;
    for (std::int64_t b = 0; b < c.texts; ++b)
      for (std::int64_t n = 0; n < c.heads; ++n)
        for (std::int64_t t = 0; t < c.tokens; ++t)
          for (std::int64_t k = 0; k < c.width; ++k, ++i)
            use(i, static_cast<std::size_t>(b * strides.text + n * strides.head + t * strides.token + k));
  }
};

}  // namespace

RotaryResult run_rotary(const RotaryCase& c) {
  const auto inputs = inputs_of(c);
  const RotaryLayout layout(c);
  const RowArray x(c.element, layout.count, c.place), y(c.element, layout.count, c.place),
      cosines(RowElement::fp32, inputs.cosines, c.place), sines(RowElement::fp32, inputs.sines, c.place);
  layout.for_each(c, [&](std::size_t i, std::size_t at) { x.set(at, stored(c.element, inputs.x[i])); });
  const auto& to = c.in_place ? x : y;
  cuda::rotary({.element = c.element,
                .texts = c.texts,
                .heads = c.heads,
                .tokens = c.tokens,
                .width = c.width,
                .pairs = c.pairs,
                .x = x.data(),
                .y = to.data(),
                .x_strides = layout.strides,
                .y_strides = layout.strides,
                .cosines = cosines.floats(),
                .sines = sines.floats(),
                .direction = c.direction},
               nullptr);
  finish_kernels();
  RotaryResult result{.y = std::vector<std::uint32_t>(c.rows() * static_cast<std::size_t>(c.width))};
  layout.for_each(c, [&](std::size_t i, std::size_t at) {
    result.y[i] = to.get(at);
    to.set(at, 0xffffffffU);
  });
  const auto untouched = c.element == RowElement::fp32 ? 0xffffffffU : 0xffffU;
  for (const auto bits : to.bits()) result.is_alone = result.is_alone && bits == untouched;
  result.is_alone = result.is_alone && to.is_alone();
  return result;
}

std::vector<float> gradients_of(const EmbeddingCase& c) {
  return drawn(RowElement::fp32, c.ids.size() * static_cast<std::size_t>(c.width), 1, 5);
}

std::vector<std::int64_t> drawn_ids(std::int64_t tokens, std::int64_t vocabulary) {
  std::vector<std::int64_t> ids;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto x = 0.5 + 0.5 * static_cast<double>(draw(static_cast<std::uint64_t>(t) + 77));
    ids.push_back(static_cast<std::int64_t>(x * x * x * static_cast<double>(vocabulary)));
  }
  return ids;
}

EmbeddingResult run_embedding_gradient(const EmbeddingCase& c) {
  const auto tokens = static_cast<std::int64_t>(c.ids.size());
  const KernelMemory ids(c.ids.size() * sizeof(std::int64_t));
  if (!c.ids.empty()) std::memcpy(ids.data(), c.ids.data(), c.ids.size() * sizeof(std::int64_t));
  const auto size = static_cast<std::size_t>(c.vocabulary) * static_cast<std::size_t>(c.width);
  const RowArray dy(RowElement::fp32, gradients_of(c), c.place),
      dtable(RowElement::fp32, std::vector<float>(size, untouched_number), c.place);
  const KernelMemory numbers(4 * static_cast<std::size_t>(cuda::embedding_gradient_numbers(tokens))),
      sums(4 * static_cast<std::size_t>(cuda::embedding_gradient_sums(tokens, c.width)));
  cuda::embedding_gradient({.ids = reinterpret_cast<const std::int64_t*>(ids.data()),
                            .tokens = tokens,
                            .vocabulary = c.vocabulary,
                            .width = c.width,
                            .dy = dy.floats(),
                            .dtable = dtable.floats(),
                            .numbers = reinterpret_cast<std::uint32_t*>(numbers.data()),
                            .sums = sums.floats()},
                           nullptr);
  finish_kernels();
  return {dtable.values(), dtable.is_alone()};
}

namespace {

void add(std::vector<std::uint32_t>& all, const RotaryResult& result) {
  all.insert(all.end(), result.y.begin(), result.y.end());
  all.push_back(result.is_alone);
}

void add(std::vector<std::uint32_t>& all, const EmbeddingResult& result) {
  for (const float x : result.dtable) all.push_back(std::bit_cast<std::uint32_t>(x));
  all.push_back(result.is_alone);
}

void add(std::vector<std::uint32_t>& all, const ActivationResult& result) {
  all.insert(all.end(), result.y.begin(), result.y.end());
  all.insert(all.end(), result.dx.begin(), result.dx.end());
  for (const float x : result.dbias) all.push_back(std::bit_cast<std::uint32_t>(x));
  all.push_back(result.is_alone);
}

}  // namespace

std::vector<std::uint32_t> run_layer_kernels() {
  std::vector<std::uint32_t> all;
  // Columns of a second tile, and rows of a second part; aligned, and with arrays that end at a page without access.
  for (const auto& c :
       std::vector<ActivationCase>{{.function = {Kind::gelu}, .element = RowElement::bf16, .rows = 130, .width = 132},
                                   {.function = {Kind::silu}, .gated = true, .rows = 11, .width = 132},
                                   {.function = {Kind::relu_squared},
                                   .gated = true,
                                   .element = RowElement::fp16,
                                   .rows = 9,
                                   .width = 131,
                                   .place = {.at_the_end = true}},
                                   {.function = {Kind::gelu_tanh}, .rows = 3, .width = 8, .place = {.shift = 1}}})
    add(all, run_activation(c));
  // Groups of four and single features, copied features, and a block that is not full.
  for (const auto& c : std::vector<RotaryCase>{
           {.element = RowElement::bf16, .heads = 3, .tokens = 5, .width = 20, .pairs = 8, .by_token = true, .gap = 4},
           {.heads = 2, .tokens = 3, .width = 11, .pairs = 5, .place = {.at_the_end = true}},
           {.tokens = 2, .width = 8, .pairs = 4, .place = {.shift = 1}}})
    add(all, run_rotary(c));
  // Ids within a window and over several windows, several chunks, two digits; aligned or not; and a number after the
  // last id that is equal to it.
  for (const auto& c : std::vector<EmbeddingCase>{
           {.vocabulary = 9, .width = 132, .ids = drawn_ids(333, 9)},
           {.vocabulary = 700, .width = 5, .ids = drawn_ids(300, 700), .place = {.at_the_end = true}},
           {.vocabulary = 3, .width = 4, .ids = drawn_ids(70, 3), .place = {.shift = 1}},
           {.vocabulary = 3, .width = 4, .ids = {2, 2, 0}}})
    add(all, run_embedding_gradient(c));
  return all;
}

}  // namespace metaformer::layer_cases
