// The residual sum and the next norm by the emulated kernels, as one node and in transformers: the same sum and the
// same dropout as by operators, and errors that are at most twice theirs.

#include <torch/autograd.h>

#include <set>

#include "model/small_models.h"
#include "model/token_model.h"
#include "ops/autocast.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/residual_norm.h"
#include "support/any_block.h"

namespace metaformer::test_residual_norm {

namespace {

using torch::Tensor;

constexpr const char* node_name = "a residual sum and its norm";

// The number of these nodes in the graph of y.
int nodes_of(const Tensor& y) {
  std::vector<torch::autograd::Node*> waiting = {y.grad_fn().get()};
  std::set<torch::autograd::Node*> seen;
  int count = 0;
  while (!waiting.empty()) {
    auto* node = waiting.back();
    waiting.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (node->name() == node_name) ++count;
    for (const auto& edge : node->next_edges()) waiting.push_back(edge.function.get());
  }
  return count;
}

Pass training_pass() {
  return {.training = true, .random = RandomStream(torch::full({1}, 77, torch::kLong), /*first_row=*/5)};
}

SumAndNorm by_operators(const ResidualSum& sum, const RowNorm& norm, torch::ScalarType normed, Pass& pass) {
  auto sum_bcd = dropout(sum.y_bcd, sum.dropout, pass);
  if (sum.x_bcd.defined()) sum_bcd = sum.x_bcd + sum_bcd;
  const auto wide_bcd = sum_bcd.to(norm.gain_d.scalar_type());
  const auto n_bcd = norm.centred
                         ? torch::layer_norm(wide_bcd, norm.gain_d.sizes(), norm.gain_d, norm.bias_d, norm.epsilon)
                         : rms_norm(wide_bcd, norm.gain_d, norm.epsilon);
  return {sum_bcd, n_bcd.to(normed)};
}

using Operation = SumAndNorm (*)(const ResidualSum&, const RowNorm&, torch::ScalarType, Pass&);

struct NodeCase {
  torch::ScalarType y = torch::kFloat, normed = torch::kFloat;
  bool centred = true, has_bias = true, has_x = true;
  double dropout = 0.3;
  std::int64_t width = 40;
};

// The sum, the norm, and the gradients of x, y, gain and bias. `wide`: in place of float32.
std::vector<Tensor> run(const NodeCase& c, Operation operation, torch::ScalarType wide) {
  torch::manual_seed(3);
  const auto is_wide = wide == torch::kDouble;
  // Numbers that every type can store.
  const auto draw = [](const std::vector<std::int64_t>& sizes) {
    return torch::randn(sizes).to(torch::kBFloat16).to(torch::kHalf);
  };
  const std::vector<std::int64_t> sizes = {3, 7, c.width};
  const auto x = (draw(sizes) + 0.5).to(wide).requires_grad_(),
             y = draw(sizes).to(is_wide ? wide : c.y).requires_grad_(),
             gain = (0.25 * draw({c.width}) + 1).to(wide).requires_grad_(), bias = draw({c.width}).to(wide);
  const auto dsum = draw(sizes).to(wide), dn = draw(sizes).to(is_wide ? wide : c.normed);
  auto pass = training_pass();
  const auto [sum_bcd, n_bcd] = operation(
      {.x_bcd = c.has_x ? x : Tensor(), .y_bcd = y, .dropout = c.dropout},
      {.centred = c.centred, .gain_d = gain, .bias_d = c.has_bias ? bias.requires_grad_() : Tensor(), .epsilon = 1e-5},
      is_wide ? wide : c.normed, pass);
  CHECK(pass.random.place() == (c.dropout > 0 ? 1 : 0));
  torch::autograd::backward({sum_bcd, n_bcd}, {dsum.to(sum_bcd.scalar_type()), dn});
  std::vector<Tensor> all = {sum_bcd.detach(), n_bcd.detach(), y.grad(), gain.grad()};
  if (c.has_x) all.push_back(x.grad());
  if (c.has_bias) all.push_back(bias.grad());
  return all;
}

void check_node(const NodeCase& c) {
  INFO(c10::toString(c.y) << " " << c10::toString(c.normed) << (c.centred ? " layer norm" : " RMS norm")
                          << (c.has_x ? "" : " no x") << " dropout " << c.dropout << " width " << c.width);
  const auto exact = run(c, by_operators, torch::kDouble), operators = run(c, by_operators, torch::kFloat),
             ours = run(c, residual_norm, torch::kFloat);
  REQUIRE(ours.size() == exact.size());
  // On the CPU operators round dropout's factor to fp16.
  if (c.y != torch::kHalf || c.dropout == 0) CHECK(torch::equal(ours[0], operators[0].to(torch::kFloat)));
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(i);
    if (i > 0) CHECK(ours[i].scalar_type() == operators[i].scalar_type());
    CHECK(relative_error(ours[i], exact[i]) <= 2 * std::max(relative_error(operators[i], exact[i]), 0x1p-22));
  }
}

TransformerConfig config_of(const NormConfig& norm) {
  auto config = small_transformer(ScaledDotProductOptions{}, /*width=*/16);
  config.norm = norm;
  config.dropout = 0.2;
  return config;
}

struct Outcome {
  Tensor y_bcd;
  Tensor gradient;  // of all parameters
  int nodes = 0;
};

// A probe makes the blocks use operators.
Outcome run(TransformerImpl& transformer, const Batch& batch, Probe* probe, Precision precision = Precision::fp32) {
  const AutocastScope scope(precision, torch::kCPU);
  auto pass = training_pass();
  pass.probe = probe;
  transformer.zero_grad();
  Outcome outcome;
  outcome.y_bcd = transformer.forward(batch, nullptr, pass);
  outcome.nodes = nodes_of(outcome.y_bcd);
  const auto weight = torch::sin(torch::arange(outcome.y_bcd.numel())).view_as(outcome.y_bcd);
  (outcome.y_bcd.to(torch::kFloat) * weight).sum().backward();
  std::vector<Tensor> parts;
  for (const auto& parameter : transformer.parameters())
    if (parameter.grad().defined()) parts.push_back(parameter.grad().flatten().clone());
  outcome.gradient = torch::cat(parts);
  return outcome;
}

// `nodes`: the expected number of sums that the kernels compute.
void check_transformer(const TransformerConfig& config, int nodes) {
  Transformer transformer(config, vocabulary, /*causal=*/true);
  initialise(*transformer, 3, /*projection_variance=*/1);
  torch::manual_seed(4);
  const Batch batch{.ids_bc = random_ids(3, 9)};
  StreamWatcher watcher;
  const auto operators = run(*transformer, batch, &watcher), ours = run(*transformer, batch, nullptr);
  CHECK(operators.nodes == 0);
  CHECK(ours.nodes == nodes);
  CHECK(relative_error(ours.y_bcd, operators.y_bcd) < 1e-5);
  CHECK(relative_error(ours.gradient, operators.gradient) < 1e-5);
  const auto rounded = run(*transformer, batch, nullptr, Precision::bf16),
             rounded_operators = run(*transformer, batch, &watcher, Precision::bf16);
  CHECK(rounded.nodes == nodes);
  const auto error = [&](const Outcome& of) { return relative_error(of.gradient, ours.gradient); };
  CHECK(error(rounded) <= 2 * error(rounded_operators));
}

}  // namespace

TEST_CASE("a residual sum and its norm by kernels are as accurate as operators", "[fused]") {
  const auto y = GENERATE(torch::kFloat, torch::kBFloat16, torch::kHalf);
  const auto normed = GENERATE(torch::kFloat, torch::kBFloat16, torch::kHalf);
  for (const bool centred : {true, false})
    for (const bool has_x : {true, false})
      for (const double dropout : {0.0, 0.3})
        check_node(
            {.y = y, .normed = normed, .centred = centred, .has_bias = centred, .has_x = has_x, .dropout = dropout});
  check_node({.y = y, .normed = normed, .width = 1});
  check_node({.y = y, .normed = normed, .width = 1100});
}

TEST_CASE("the node of a residual sum has the gradients of a result alone, and of chosen inputs", "[fused]") {
  torch::manual_seed(3);
  const auto made = [] { return torch::randn({2, 3, 20}).requires_grad_(); };
  const auto x = made(), y = made(), gain = torch::rand({20}).requires_grad_();
  const RowNorm norm{.centred = true, .gain_d = gain, .epsilon = 1e-5};
  Pass evaluation;
  const auto ours = residual_norm({.x_bcd = x, .y_bcd = y, .dropout = 0.3}, norm, torch::kFloat, evaluation);
  const auto theirs = by_operators({.x_bcd = x, .y_bcd = y}, norm, torch::kFloat, evaluation);
  const auto weight = torch::randn({2, 3, 20});
  const auto gradient = [&](const Tensor& result, const Tensor& input) {
    return torch::autograd::grad({(result * weight).sum()}, {input}, {}, /*retain_graph=*/true)[0];
  };
  for (const auto& input : {x, y, gain})
    CHECK(relative_error(gradient(ours.normed_bcd, input), gradient(theirs.normed_bcd, input)) < 1e-6);
  for (const auto& input : {x, y}) CHECK(torch::equal(gradient(ours.sum_bcd, input), weight));
  const torch::NoGradGuard no_grad;
  const auto without = residual_norm({.x_bcd = x, .y_bcd = y}, norm, torch::kFloat, evaluation);
  CHECK_FALSE(without.normed_bcd.requires_grad());
  CHECK(torch::equal(without.normed_bcd, ours.normed_bcd));
}

TEST_CASE("views of a residual stream give the same bits", "[fused]") {
  torch::manual_seed(3);
  const auto x = torch::randn({4, 5, 24}), y = torch::randn({4, 5, 24}).to(torch::kBFloat16);
  const RowNorm norm{.gain_d = torch::rand({24}), .epsilon = 1e-5};
  const auto result = [&](const Tensor& x_bcd, const Tensor& y_bcd) {
    auto pass = training_pass();
    return residual_norm({.x_bcd = x_bcd, .y_bcd = y_bcd, .dropout = 0.3}, norm, torch::kBFloat16, pass).normed_bcd;
  };
  const auto moved = torch::empty({4 * 5 * 24 + 1}, torch::kBFloat16).narrow(0, 1, 4 * 5 * 24).view_as(y).copy_(y);
  CHECK(torch::equal(result(x.transpose(0, 1).contiguous().transpose(0, 1), moved), result(x, y)));
}

TEST_CASE("operators compute residual sums that the kernels do not have", "[fused]") {
  const auto x = torch::ones({2, 3, 8}), gain = torch::ones({8});
  const RowNorm norm{.gain_d = gain, .epsilon = 1e-5};
  CHECK(residual_norm_fits({.x_bcd = x, .y_bcd = x}, norm));
  CHECK_FALSE(residual_norm_fits({.x_bcd = x, .y_bcd = x.to(torch::kDouble)}, norm));
  CHECK_FALSE(residual_norm_fits({.x_bcd = x.to(torch::kBFloat16), .y_bcd = x}, norm));
  CHECK_FALSE(residual_norm_fits({.x_bcd = x, .y_bcd = x.narrow(0, 0, 0)}, norm));
  CHECK_FALSE(residual_norm_fits({.y_bcd = x}, {.gain_d = gain.to(torch::kDouble)}));
  const auto wide = torch::ones({1, 1, 4100});
  CHECK_FALSE(residual_norm_fits({.y_bcd = wide}, {.gain_d = wide.flatten()}));
}

TEST_CASE("transformers with every norm train by the kernels as by operators", "[fused]") {
  const auto norm = any_norm();
  const bool is_post = position_of(norm) == NormPosition::post;
  check_transformer(config_of(norm), is_post ? 0 : 4);  // two blocks of two branches
}

TEST_CASE("blocks of every structure train by the kernels as by operators", "[fused]") {
  const auto usual = config_of(LayerNormConfig{});
  auto no_residual = usual, no_feed_forward = usual, chunks = usual, convolution = usual, no_final_norm = usual,
       pooling = usual;
  no_residual.residual = false;
  no_feed_forward.feed_forward = *make_kind<FeedForwardConfig>("none");
  chunks.feed_forward = MlpConfig{.chunks = 3};
  convolution.convolution = 3;
  no_final_norm.norm = LayerNormConfig{.final = false};
  pooling.mixer = *make_kind<MixerConfig>("average_pooling");
  check_transformer(no_residual, 4);
  check_transformer(no_feed_forward, 2);
  check_transformer(chunks, 4);
  check_transformer(convolution, 4);
  check_transformer(no_final_norm, 3);
  check_transformer(pooling, 4);
}

TEST_CASE("reversible blocks and passes under a probe use operators", "[fused]") {
  auto config = config_of(LayerNormConfig{});
  const Batch batch{.ids_bc = torch::ones({2, 5}, torch::kLong)};
  StreamWatcher watcher;
  Transformer usual(config, vocabulary, /*causal=*/true);
  CHECK(run(*usual, batch, nullptr).nodes > 0);
  CHECK(run(*usual, batch, &watcher).nodes == 0);
  config.blocks = BlockKind::reversible;
  Transformer reversible(config, vocabulary, /*causal=*/true);
  CHECK(run(*reversible, batch, nullptr).nodes == 0);
}

}  // namespace metaformer::test_residual_norm
