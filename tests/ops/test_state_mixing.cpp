// The recurrence of matrix states: token by token and in chunks against its definition in float64, for every kind of
// decay and product, with segments, padding and states that are carried on.

#include <torch/autograd.h>

#include "ops/state_mixing.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

using torch::Tensor;

constexpr std::int64_t batch = 2, heads = 2, width = 5, value_width = 3;

enum class Decays { none, by_head, by_feature, strong };
enum class Products { none, delta, free };

struct Case {
  Decays decays = Decays::none;
  Products products = Products::none;
  std::int64_t tokens = 1;
};

StateSteps draw(const Case& given, torch::ScalarType type = torch::kDouble) {
  const auto c = given.tokens;
  const auto normal = [&](std::int64_t features) { return torch::randn({batch, heads, c, features}, torch::kDouble); };
  StateSteps steps{.q_bnck = normal(width), .k_bnck = normal(width), .value_bncv = normal(value_width)};
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

// The definition, a sequence, a head and a token at a time.
std::pair<Tensor, Tensor> by_definition(const StateSteps& steps, const Tensor& state_bnvk = {},
                                        std::vector<std::int64_t> segment_b = {}) {
  const auto c = steps.k_bnck.size(2);
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

// A text of segments of several lengths, with padding between and behind them.
Tensor segments(std::int64_t tokens) {
  auto segment_bc = torch::arange(tokens).div(7, "floor").repeat({batch, 1});
  segment_bc.select(0, 1).copy_(torch::arange(tokens).div(70, "floor"));
  segment_bc.masked_fill_(torch::arange(tokens).remainder(11) == 3, -1);
  if (tokens > 2) segment_bc.narrow(1, tokens - 2, 2).fill_(-1);
  return segment_bc;
}

}  // namespace

TEST_CASE("chunks and single tokens compute the recurrence", "[state_mixing]") {
  const auto given = any_case();
  torch::manual_seed(3);
  const auto steps = draw(given);
  const auto state_bnvk = torch::randn({batch, heads, value_width, width}, torch::kDouble);
  const auto [o, last] = by_definition(steps, state_bnvk);
  for (const auto form : forms) {
    StateMemory memory{.state_bnvk = state_bnvk};
    CHECK(relative_error(form(steps, memory), o) < 1e-11);
    CHECK(relative_error(memory.state_bnvk, last) < 1e-11);
  }
}

TEST_CASE("in float32 and bfloat16 states are float32, and results near the definition", "[state_mixing]") {
  const auto given = any_case();
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  torch::manual_seed(4);
  const auto steps = draw(given, type);
  const auto [o, last] = by_definition(steps);
  for (const auto form : forms) {
    StateMemory memory;
    const auto mixed = form(steps, memory);
    CHECK(mixed.scalar_type() == type);
    CHECK(memory.state_bnvk.scalar_type() == torch::kFloat);
    CHECK(relative_error(mixed, o) < (type == torch::kFloat ? 2e-5 : 4e-3));
    CHECK(relative_error(memory.state_bnvk, last) < 2e-5);
  }
}

TEST_CASE("segments start with empty states, and padding changes none", "[state_mixing]") {
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

TEST_CASE("a sequence in parts, with the state carried on, is the whole", "[state_mixing]") {
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

TEST_CASE("gradients of the chunks are those of the recurrence", "[state_mixing]") {
  Case given{.decays = GENERATE(Decays::none, Decays::by_head, Decays::by_feature, Decays::strong),
             .products = GENERATE(Products::none, Products::delta, Products::free),
             .tokens = GENERATE(1, 17, 70)};
  const bool segmented = GENERATE(false, true);
  torch::manual_seed(7);
  const auto drawn = draw(given);
  const auto state = torch::randn({batch, heads, value_width, width}, torch::kDouble);
  const auto gradients = [&](const auto& form) {
    auto steps = drawn;
    if (segmented) steps.segment_bc = segments(given.tokens);
    std::vector<Tensor> leaves;
    const auto leaf = [&](Tensor& x) {
      if (!x.defined()) return;
      x = x.detach().clone().requires_grad_();
      leaves.push_back(x);
    };
    for (auto* x :
         {&steps.q_bnck, &steps.k_bnck, &steps.value_bncv, &steps.log_decay_bncw, &steps.a_bnck, &steps.b_bnck})
      leaf(*x);
    StateMemory memory{.state_bnvk = state};
    leaf(memory.state_bnvk);
    const auto first = memory.state_bnvk;
    const auto o = form(steps, memory);
    torch::manual_seed(8);
    const auto loss = (o * torch::randn_like(o)).sum() + (memory.state_bnvk * torch::randn_like(first)).sum();
    return torch::autograd::grad({loss}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  };
  const auto chunks = gradients(mix_states_in_chunks), tokens = gradients(mix_states_by_token);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    REQUIRE(chunks[i].defined() == tokens[i].defined());
    if (chunks[i].defined()) CHECK(relative_error(chunks[i], tokens[i]) < 1e-10);
  }
}

TEST_CASE("many tokens with decays near 0 and near 1, rates of 0, 1 and 2 and keys of 0 stay finite",
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
  StateMemory memory;
  const auto mixed = mix_states_in_chunks(steps, memory);
  CHECK(mixed.isfinite().all().item<bool>());
  CHECK(relative_error(mixed, o) < 2e-5);
  CHECK(relative_error(memory.state_bnvk, last) < 2e-5);
}

}  // namespace metaformer
