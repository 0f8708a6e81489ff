// Reversible blocks and chunked feed-forward branches, which backward computes again, against plain autograd.

#include "model/reversible.h"
#include "model/small_models.h"
#include "model/token_model.h"
#include "ops/autocast.h"
#include "support/any_block.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer::test_reversible {

namespace {

constexpr std::int64_t width = 12, context = 10;

TransformerConfig config_of(const MixerConfig& mixer, std::int64_t layers = 3) {
  auto config = small_transformer(mixer, width, context);
  config.layers = layers;
  config.heads = with_pairs({.width = width, .heads = 3}, mixer).heads;
  config.dropout = 0.2;
  config.blocks = BlockKind::reversible;
  return config;
}

struct Result {
  torch::Tensor y_bcd;
  torch::autograd::variable_list gradients;  // of x, of the weights of all blocks, and of shared tensors
};

// A stack of blocks in training, with the random numbers of one key.
struct Stack {
  Stack(const TransformerConfig& config, torch::ScalarType type) {
    torch::manual_seed(3);
    for (std::int64_t i = 0; i < config.layers; ++i) blocks.emplace_back(config);
    const torch::NoGradGuard no_grad;
    for (auto& block : blocks) {
      block->to(type);
      for (auto& parameter : block->parameters()) parameter.normal_(0, 0.3);
    }
  }

  Result run(BlockGradients gradients, const torch::Tensor& given_bcd, const Visibility& visibility,
             const std::vector<torch::Tensor>& shared = {}) const {
    const auto x_bcd = given_bcd.detach().requires_grad_();
    Pass pass{.training = true, .random = RandomStream(torch::full({1}, 77, torch::kLong))};
    Result result;
    result.y_bcd = through_reversible(
        blocks, x_bcd, [&](std::size_t, const torch::Tensor&) { return BlockImpl::Surroundings{visibility}; },
        gradients, pass);
    places.push_back(pass.random.place());
    torch::autograd::variable_list inputs = {x_bcd};
    for (const auto& block : blocks)
      for (const auto& parameter : block->parameters())
        if (parameter.requires_grad()) inputs.push_back(parameter);
    inputs.insert(inputs.end(), shared.begin(), shared.end());
    const auto weight_bcd = torch::sin(torch::arange(result.y_bcd.numel())).view_as(result.y_bcd);
    result.gradients =
        torch::autograd::grad({(result.y_bcd * weight_bcd.to(result.y_bcd)).sum()}, inputs, {}, {}, false,
                              /*allow_unused=*/true);
    return result;
  }

  mutable std::vector<Block> blocks;
  mutable std::vector<std::uint64_t> places;  // of the random numbers after each run
};

void check_same(const Result& found, const Result& expected, double tolerance) {
  CHECK(torch::allclose(found.y_bcd, expected.y_bcd, tolerance, tolerance));
  REQUIRE(found.gradients.size() == expected.gradients.size());
  double largest = 0;
  for (const auto& gradient : expected.gradients)
    if (gradient.defined()) largest = std::max(largest, gradient.abs().max().item<double>());
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    const auto &one = found.gradients[i], &other = expected.gradients[i];
    if (!other.defined() || !one.defined()) {
      // An undefined gradient is zero.
      CHECK((one.defined() ? one : other.defined() ? other : torch::zeros(1)).abs().max().item<double>() == 0);
      continue;
    }
    INFO("input " << i);
    CHECK((one - other).norm().item<double>() <= tolerance * (other.norm().item<double>() + 0.01 * largest));
  }
}

torch::Tensor random_input(torch::ScalarType type) {
  torch::manual_seed(9);
  return torch::randn({2, context, width}, type);
}

}  // namespace

TEST_CASE("reversible blocks with dropout have the gradients of plain autograd, with every mixer", "[reversible]") {
  const auto mixer = any_mixer();
  const Stack stack(config_of(mixer), torch::kFloat);
  const auto x_bcd = random_input(torch::kFloat);
  const auto visibility = self_visibility(/*causal=*/true, torch::Tensor());
  check_same(stack.run(BlockGradients::by_inversion, x_bcd, visibility),
             stack.run(BlockGradients::as_usual, x_bcd, visibility), 1e-5);
  CHECK(stack.places[0] == stack.places[1]);
}

TEST_CASE("reversible blocks of every kind in double differ from plain autograd only by rounding", "[reversible]") {
  auto config = config_of(GENERATE(MixerConfig(MetricOptions{}), MixerConfig(LshOptions{.rounds = 2, .chunk = 4})));
  config.norm = any_norm();
  if (position_of(config.norm) == NormPosition::post)
    return does_not_apply("a block with its norm behind cannot be inverted");
  config.feed_forward = any_feed_forward();
  config.bias = GENERATE(false, true);
  const Stack stack(config, torch::kDouble);
  const auto x_bcd = random_input(torch::kDouble);
  const auto segments = torch::tensor({{0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, -1, -1, -1}});
  const auto visibility = self_visibility(GENERATE(false, true), segments);
  check_same(stack.run(BlockGradients::by_inversion, x_bcd, visibility),
             stack.run(BlockGradients::as_usual, x_bcd, visibility), 1e-11);
}

TEST_CASE("gradients reach the tensors that all reversible blocks share", "[reversible]") {
  auto config = config_of(ScaledDotProductOptions{});
  config.positions = TransformerXlPositionsConfig{};
  const Stack stack(config, torch::kDouble);
  auto visibility = self_visibility(/*causal=*/true, torch::Tensor());
  DistanceTable table(width, 0);
  visibility.distance_ld = table.rows_ld(context, context, true, torch::zeros(1, torch::kDouble));
  torch::manual_seed(4);
  const auto leaf = [] { return torch::randn({3, 4}, torch::kDouble).requires_grad_(); };
  visibility.content_bias_nk = leaf();
  visibility.distance_bias_nk = leaf();
  visibility.score_bias_nce = torch::randn({3, context, context}, torch::kDouble).requires_grad_();
  const std::vector<torch::Tensor> shared = {visibility.content_bias_nk, visibility.distance_bias_nk,
                                             visibility.score_bias_nce};
  const auto x_bcd = random_input(torch::kDouble);
  const auto found = stack.run(BlockGradients::by_inversion, x_bcd, visibility, shared);
  check_same(found, stack.run(BlockGradients::as_usual, x_bcd, visibility, shared), 1e-11);
  for (std::size_t i = 1; i <= 3; ++i)
    CHECK(found.gradients[found.gradients.size() - i].abs().sum().item<double>() > 0);
}

TEST_CASE("reversible blocks under autocast have the gradients of plain autograd within bfloat16's rounding",
          "[reversible]") {
  const Stack stack(config_of(MetricOptions{}), torch::kFloat);
  const auto x_bcd = random_input(torch::kFloat);
  const auto visibility = self_visibility(/*causal=*/true, torch::Tensor());
  const auto run = [&](BlockGradients gradients) {
    const AutocastScope autocast(Precision::bf16, torch::kCPU);
    return stack.run(gradients, x_bcd, visibility);
  };
  // Recomputed inputs differ by the rounding of the float32 streams, products by that of bfloat16.
  check_same(run(BlockGradients::by_inversion), run(BlockGradients::as_usual), 0.03);
}

TEST_CASE("a whole reversible model has the gradients of plain autograd with and without memory", "[reversible]") {
  auto config = config_of(MetricOptions{});
  config.positions = GENERATE(PositionsConfig(TransformerXlPositionsConfig{}), PositionsConfig(T5PositionsConfig{}));
  config.memory = GENERATE(0, 7);
  auto model = started(Gpt(config, vocabulary));
  torch::manual_seed(2);
  const auto ids_bc = random_ids(2, context);
  const auto gradients = [&](Probe* probe) {
    const auto memory = model.new_memory();
    Pass pass{.training = true, .random = RandomStream(torch::full({1}, 5, torch::kLong)), .probe = probe};
    for (int i = 0; i < 2; ++i) {
      model.zero_grad();
      model.forward({.ids_bc = ids_bc}, memory.get(), pass).square().mean().backward();
    }
    std::vector<torch::Tensor> all;
    for (const auto& parameter : model.parameters()) all.push_back(parameter.grad().clone());
    return all;
  };
  StreamWatcher probe;
  const auto found = gradients(nullptr), expected = gradients(&probe);
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK((found[i] - expected[i]).norm().item<double>() <= 1e-5 * expected[i].norm().item<double>() + 1e-9);
}

TEST_CASE("a chunked feed-forward branch gives the same values and gradients", "[chunks]") {
  auto config = config_of(IdentityOptions{}, 1);
  config.blocks = BlockKind::plain;
  config.feed_forward = any_feed_forward();
  config.bias = true;
  FeedForward whole(config);
  const auto chunks = GENERATE(2, 3, 7, 1000);
  const auto set_chunks = [&](auto& options) {
    if constexpr (requires { options.chunks = chunks; }) options.chunks = chunks;
  };
  std::visit(set_chunks, config.feed_forward);
  FeedForward parts(config);
  torch::manual_seed(8);
  const auto x_bcd = torch::randn({3, 7, width}, torch::kDouble).requires_grad_();
  const auto run = [&](FeedForward& branch) {
    branch->to(torch::kDouble);
    torch::autograd::variable_list inputs = {x_bcd};
    {
      torch::manual_seed(6);
      const torch::NoGradGuard no_grad;
      for (auto& parameter : branch->parameters()) inputs.push_back(parameter.normal_());
    }
    const auto y_bcd = branch(x_bcd);
    auto all = torch::autograd::grad({y_bcd.pow(3).sum()}, inputs);
    all.push_back(y_bcd.detach());
    return all;
  };
  const auto found = run(parts), expected = run(whole);
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(torch::allclose(found[i], expected[i], 1e-10, 1e-10));
}

}  // namespace metaformer::test_reversible
