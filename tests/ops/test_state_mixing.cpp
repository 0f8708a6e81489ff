// The recurrence of matrix states: token by token, in chunks and by the CPU kernels, against its definition in float64,
// for every kind of decay and product, with segments, padding and carried states.

#include <torch/autograd.h>

#include "cpu/state_mixing.h"
#include "ops/state_mixing.h"
#include "support/torch_catch.h"

namespace metaformer::test_state_mixing {

namespace {

using torch::Tensor;

constexpr std::int64_t batch = 2, heads = 2;

enum class Decays { none, by_head, by_feature, strong };
enum class Products { none, delta, free };

struct Case {
  Decays decays = Decays::none;
  Products products = Products::none;
  std::int64_t tokens = 1, width = 5, value_width = 3;
};

StateSteps draw(const Case& given, torch::ScalarType type = torch::kDouble) {
  const auto c = given.tokens, width = given.width;
  const auto normal = [&](std::int64_t features) { return torch::randn({batch, heads, c, features}, torch::kDouble); };
  StateSteps steps{.q_bnck = normal(width), .k_bnck = normal(width), .value_bncv = normal(given.value_width)};
  const auto features = given.decays == Decays::by_head ? 1 : width;
  if (given.decays != Decays::none) {
    const double scale = given.decays == Decays::strong ? 40 : 0.3;
    steps.log_decay_bncw = -scale * torch::rand({batch, heads, c, features}, torch::kDouble);
  }
  if (given.products != Products::none) {
    steps.k_bnck = steps.k_bnck / steps.k_bnck.norm(2, -1, true);
    const auto rate = 2 * torch::rand({batch, heads, c, 1}, torch::kDouble);
    steps.a_bnck = -rate * steps.k_bnck;
    steps.b_bnck = steps.k_bnck;
    steps.value_bncv = rate * steps.value_bncv;
    if (given.products == Products::free) steps.b_bnck = steps.k_bnck * torch::rand_like(steps.k_bnck);
  }
  for (auto* tensor :
       {&steps.q_bnck, &steps.k_bnck, &steps.value_bncv, &steps.log_decay_bncw, &steps.a_bnck, &steps.b_bnck})
    if (tensor->defined()) *tensor = tensor->to(type);
  return steps;
}

// By the definition, for one sequence, head and token at a time.
std::pair<Tensor, Tensor> by_definition(const StateSteps& steps, const Tensor& state_bnvk = {},
                                        std::vector<std::int64_t> segment_b = {}) {
  const auto c = steps.k_bnck.size(2), width = steps.k_bnck.size(3), value_width = steps.value_bncv.size(3);
  auto o = torch::zeros({batch, heads, c, value_width}, torch::kDouble);
  auto states = state_bnvk.defined() ? state_bnvk.to(torch::kDouble).clone()
                                     : torch::zeros({batch, heads, value_width, width}, torch::kDouble);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t n = 0; n < heads; ++n) {
      auto state = states[b][n].clone();
      auto segment = segment_b.empty() ? std::int64_t{-2} : segment_b[static_cast<std::size_t>(b)];
      for (std::int64_t t = 0; t < c; ++t) {
        if (steps.segment_bc.defined()) {
          const auto own = steps.segment_bc[b][t].item<std::int64_t>();
          if (own < 0) continue;
          if (segment != -2 && own != segment) state = torch::zeros_like(state);
          segment = own;
        }
        const auto at = [&](const Tensor& x) { return x[b][n][t].to(torch::kDouble); };
        auto next = torch::outer(at(steps.value_bncv), at(steps.k_bnck));
        if (steps.a_bnck.defined()) next = next + torch::outer(torch::mv(state, at(steps.a_bnck)), at(steps.b_bnck));
        state = (steps.log_decay_bncw.defined() ? state * at(steps.log_decay_bncw).exp() : state) + next;
        o[b][n][t] = torch::mv(state, at(steps.q_bnck));
      }
      states[b][n] = state;
    }
  }
  return {o, states};
}

Case any_case() {
  return {.decays = GENERATE(Decays::none, Decays::by_head, Decays::by_feature, Decays::strong),
          .products = GENERATE(Products::none, Products::delta, Products::free),
          .tokens = GENERATE(1, 2, 15, 16, 17, 63, 64, 65, 197)};
}

constexpr auto forms = {mix_states_in_chunks, mix_states_by_token};
constexpr auto forms_in_float = {mix_states_in_chunks, mix_states_by_token, mix_states_by_kernels, mix_states};

// Segments of several lengths, with padding between and after them.
Tensor segments(std::int64_t tokens) {
  auto segment_bc = torch::arange(tokens).div(7, "floor").repeat({batch, 1});
  segment_bc.select(0, 1).copy_(torch::arange(tokens).div(70, "floor"));
  segment_bc.masked_fill_(torch::arange(tokens).remainder(11) == 3, -1);
  if (tokens > 2) segment_bc.narrow(1, tokens - 2, 2).fill_(-1);
  return segment_bc;
}

}  // namespace

TEST_CASE("the forms in chunks and by token equal the recurrence", "[state_mixing]") {
  const auto given = any_case();
  torch::manual_seed(3);
  const auto steps = draw(given);
  const auto state_bnvk = torch::randn({batch, heads, given.value_width, given.width}, torch::kDouble);
  const auto [o, last] = by_definition(steps, state_bnvk);
  for (const auto form : forms) {
    StateMemory memory{.state_bnvk = state_bnvk};
    CHECK(relative_error(form(steps, memory), o) < 1e-11);
    CHECK(relative_error(memory.state_bnvk, last) < 1e-11);
  }
}

TEST_CASE("for float32 and bfloat16 inputs states are float32, and results are near the definition", "[state_mixing]") {
  const auto given = any_case();
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  torch::manual_seed(4);
  const auto steps = draw(given, type);
  const auto [o, last] = by_definition(steps);
  for (const auto form : forms_in_float) {
    StateMemory memory;
    const auto mixed = form(steps, memory);
    CHECK(mixed.scalar_type() == type);
    CHECK(memory.state_bnvk.scalar_type() == torch::kFloat);
    CHECK(relative_error(mixed, o) < (type == torch::kFloat ? 2e-5 : 4e-3));
    CHECK(relative_error(memory.state_bnvk, last) < 2e-5);
  }
}

TEST_CASE("segments start with empty states, and padding does not change states", "[state_mixing]") {
  const auto given = any_case();
  torch::manual_seed(5);
  auto steps = draw(given);
  steps.segment_bc = segments(given.tokens);
  const auto [o, last] = by_definition(steps);
  for (const auto form : forms) {
    StateMemory memory;
    CHECK(relative_error(form(steps, memory), o) < 1e-11);
    CHECK(relative_error(memory.state_bnvk, last) < 1e-11);
  }
}

TEST_CASE("a sequence in parts with a carried state equals the whole sequence", "[state_mixing]") {
  Case given = any_case();
  if (given.tokens < 3) return does_not_apply("it has no three parts");
  torch::manual_seed(6);
  auto steps = draw(given);
  if (GENERATE(false, true)) steps.segment_bc = segments(given.tokens);
  const auto [o, last] = by_definition(steps);
  StateMemory memory;
  std::vector<Tensor> parts;
  std::int64_t first = 0;
  for (const auto count : {given.tokens / 3, std::int64_t{1}, given.tokens - given.tokens / 3 - 1}) {
    auto part = steps;
    for (auto* tensor :
         {&part.q_bnck, &part.k_bnck, &part.value_bncv, &part.log_decay_bncw, &part.a_bnck, &part.b_bnck})
      if (tensor->defined()) *tensor = tensor->narrow(2, first, count);
    if (part.segment_bc.defined()) part.segment_bc = part.segment_bc.narrow(1, first, count);
    parts.push_back(count == 1 ? mix_states_by_token(part, memory) : mix_states_in_chunks(part, memory));
    first += count;
  }
  CHECK(relative_error(torch::cat(parts, 2), o) < 1e-11);
  CHECK(relative_error(memory.state_bnvk, last) < 1e-11);
}

// Gradients of a weighted sum of o and the last state with respect to all inputs and the first state. `type`: the type
// of the inputs.
template <class Form>
std::vector<Tensor> gradients(const Form& form, StateSteps steps, Tensor state_bnvk,
                              torch::ScalarType type = torch::kDouble) {
  std::vector<Tensor> leaves;
  for (auto* x : {&steps.q_bnck, &steps.k_bnck, &steps.value_bncv, &steps.log_decay_bncw, &steps.a_bnck, &steps.b_bnck,
                  &state_bnvk}) {
    if (!x->defined()) continue;
    *x = x->detach().to(type).clone().requires_grad_();
    leaves.push_back(*x);
  }
  StateMemory memory{.state_bnvk = state_bnvk};
  const auto o = form(steps, memory);
  torch::manual_seed(8);
  const auto by_number = [](const Tensor& x) {
    return (x.to(torch::kDouble) * torch::randn(x.sizes(), torch::kDouble)).sum();
  };
  return torch::autograd::grad({by_number(o) + by_number(memory.state_bnvk)}, leaves, {}, std::nullopt, false,
                               /*allow_unused=*/true);
}

TEST_CASE("gradients of the form in chunks equal those of the recurrence", "[state_mixing]") {
  Case given{.decays = GENERATE(Decays::none, Decays::by_head, Decays::by_feature, Decays::strong),
             .products = GENERATE(Products::none, Products::delta, Products::free),
             .tokens = GENERATE(1, 17, 70)};
  torch::manual_seed(7);
  auto steps = draw(given);
  if (GENERATE(false, true)) steps.segment_bc = segments(given.tokens);
  const auto state = torch::randn({batch, heads, given.value_width, given.width}, torch::kDouble);
  const auto chunks = gradients(mix_states_in_chunks, steps, state),
             tokens = gradients(mix_states_by_token, steps, state);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    REQUIRE(chunks[i].defined() == tokens[i].defined());
    if (chunks[i].defined()) CHECK(relative_error(chunks[i], tokens[i]) < 1e-10);
  }
}

TEST_CASE("kernels equal the recurrence and its gradients for every width, segment and layout", "[state_mixing]") {
  Case given{.decays = GENERATE(Decays::none, Decays::by_head, Decays::by_feature, Decays::strong),
             .products = GENERATE(Products::none, Products::free),
             .tokens = GENERATE(1, 16, 35)};
  std::tie(given.width, given.value_width) =
      GENERATE(table<std::int64_t, std::int64_t>({{1, 1}, {5, 16}, {16, 33}, {33, 48}, {32, 32}}));
  const bool segmented = GENERATE(false, true);
  torch::manual_seed(10);
  auto steps = draw(given);
  if (segmented) steps.segment_bc = segments(given.tokens);
  const auto state = torch::randn({batch, heads, given.value_width, given.width}, torch::kDouble);
  // Values in the layout of a projection, and queries that all heads share.
  steps.value_bncv = steps.value_bncv.transpose(1, 2).contiguous().transpose(1, 2);
  steps.q_bnck = steps.q_bnck.narrow(1, 0, 1).expand({-1, heads, -1, -1});
  CAPTURE(given.width, given.value_width, given.tokens, segmented);
  StateMemory exact{.state_bnvk = state}, narrow{.state_bnvk = state.to(torch::kFloat)};
  auto in_float = steps;
  for (auto* x : {&in_float.q_bnck, &in_float.k_bnck, &in_float.value_bncv, &in_float.log_decay_bncw, &in_float.a_bnck,
                  &in_float.b_bnck})
    if (x->defined()) *x = x->to(torch::kFloat);
  CHECK(relative_error(mix_states_by_kernels(in_float, narrow), mix_states_by_token(steps, exact)) < 2e-6);
  CHECK(relative_error(narrow.state_bnvk, exact.state_bnvk) < 2e-6);
  const auto expected = gradients(mix_states_by_token, steps, state),
             ours = gradients(mix_states_by_kernels, steps, state, torch::kFloat);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(i);
    REQUIRE(ours[i].defined());
    if (!expected[i].defined() || expected[i].abs().max().item<double>() == 0)
      CHECK(ours[i].abs().max().item<double>() == 0);
    else
      CHECK(relative_error(ours[i], expected[i]) < 1e-5);
  }
}

TEST_CASE("kernels with every instruction set compute the same states", "[state_mixing]") {
  constexpr std::int64_t tokens = 40, width = 20, value_width = 40;
  torch::manual_seed(11);
  const auto rows = [](std::int64_t features) { return torch::randn({tokens, features}); };
  const auto q = rows(width), k = rows(width), value = rows(value_width), log_decay = -rows(width).abs(),
             a = 0.1 * rows(width), b = rows(width), dout = rows(value_width);
  const auto of = [](const Tensor& x) { return TokenRows<const float>{x.data_ptr<float>(), x.size(1)}; };
  const auto to = [](const Tensor& x) { return TokenRows<float>{x.data_ptr<float>(), x.size(1)}; };
  const HeadStates head{.tokens = tokens,
                        .key_width = width,
                        .value_width = value_width,
                        .decay_width = width,
                        .q = of(q),
                        .k = of(k),
                        .value = of(value),
                        .log_decay = of(log_decay),
                        .a = of(a),
                        .b = of(b)};
  const auto computed = [&](VectorCode code) {
    auto o = torch::zeros({tokens, value_width}), state = torch::zeros({width, head.columns()}),
         kept = torch::zeros({3, width, head.columns()}), dstate = torch::zeros_like(state);
    std::vector<Tensor> d;
    for (const auto& x : {q, k, value, log_decay, a, b}) d.push_back(torch::zeros_like(x));
    std::vector<float> room;
    mix_head_states(head, state.data_ptr<float>(), to(o), kept.data_ptr<float>(), room, code);
    mix_head_states_backward(head, kept.data_ptr<float>(), dstate.data_ptr<float>(),
                             {.o = of(dout),
                              .q = to(d[0]),
                              .k = to(d[1]),
                              .value = to(d[2]),
                              .log_decay = to(d[3]),
                              .a = to(d[4]),
                              .b = to(d[5])},
                             room, code);
    d.insert(d.end(), {o, state, dstate});
    return d;
  };
  const auto expected = computed(VectorCode::plain);
  for (const auto code : {VectorCode::avx2, VectorCode::avx512}) {
    if (code > widest_vector_code()) continue;
    const auto ours = computed(code);
    for (std::size_t i = 0; i < ours.size(); ++i) CHECK(relative_error(ours[i], expected[i]) < 1e-5);
  }
}

TEST_CASE("results of many tokens with decays near 0 and 1, rates of 0, 1 and 2 and keys of 0 are finite",
          "[state_mixing]") {
  torch::manual_seed(9);
  auto steps = draw({.decays = Decays::by_feature, .products = Products::delta, .tokens = 4096}, torch::kFloat);
  const auto place = torch::arange(4096).view({1, 1, -1, 1});
  steps.log_decay_bncw = torch::where(place.remainder(3) == 0, torch::tensor(-80.0F), torch::tensor(-1e-7F)) +
                         torch::zeros_like(steps.log_decay_bncw);
  const auto rate = place.remainder(5).clamp_max(2).to(torch::kFloat);
  steps.k_bnck = steps.k_bnck * (place.remainder(7) > 0);
  steps.a_bnck = -rate * steps.k_bnck;
  steps.b_bnck = steps.k_bnck;
  const auto [o, last] = by_definition(steps);
  for (const auto form : {mix_states_in_chunks, mix_states_by_kernels}) {
    StateMemory memory;
    const auto mixed = form(steps, memory);
    CHECK(mixed.isfinite().all().item<bool>());
    CHECK(relative_error(mixed, o) < 2e-5);
    CHECK(relative_error(memory.state_bnvk, last) < 2e-5);
  }
}

}  // namespace metaformer::test_state_mixing
