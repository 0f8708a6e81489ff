// Blocks with every norm and feed-forward branch. Their formulas are in tests/python/reference_model.py.

#include "model/block.h"
#include "model/small_models.h"
#include "ops/autocast.h"
#include "support/any_block.h"

namespace metaformer::test_block {

namespace {

TransformerConfig config_of(const NormConfig& norm, const FeedForwardConfig& feed_forward, bool bias, bool residual) {
  auto config = small_transformer(IdentityOptions{}, 12);  // only the norms and the feed-forward branch are tested
  config.norm = norm;
  config.feed_forward = feed_forward;
  config.bias = bias;
  config.residual = residual;
  return config;
}

}  // namespace

TEST_CASE("the gradients of a block in bfloat16 and float16 are near those in float32", "[block]") {
  const auto config = config_of(any_norm(), any_feed_forward(), GENERATE(false, true), GENERATE(true, false));
  const auto precision = GENERATE(Precision::bf16, Precision::fp16);
  Block block(config);
  torch::manual_seed(5);
  {
    const torch::NoGradGuard no_grad;
    block->to(torch::kDouble);
    for (auto& parameter : block->parameters()) parameter.normal_(0.3, 0.6);
    block->to(torch::kFloat);
    for (auto& parameter : block->parameters()) parameter.mul_(0.4);  // squared twice, no number exceeds float16
  }
  const auto x_bcd = torch::randn({4, 5, config.width});
  Pass pass;
  const auto gradient = [&](Precision type) {
    block->zero_grad();
    torch::Tensor y_bcd;
    {
      const AutocastScope scope(type, torch::kCPU);
      y_bcd = block->forward(x_bcd, {self_visibility(/*causal=*/true, {})}, pass);
    }
    y_bcd.to(torch::kFloat).square().mean().backward();
    std::vector<torch::Tensor> parts;
    for (const auto& parameter : block->parameters()) parts.push_back(parameter.grad().flatten().clone());
    return torch::cat(parts);
  };
  const auto exact = gradient(Precision::fp32), rounded = gradient(precision);
  CHECK(relative_error(rounded, exact) < 0.05);
}

TEST_CASE("blocks with different norms or feed-forward branches share all other initial weights", "[block]") {
  TransformerConfig usual;
  usual.mixer = ScaledDotProductOptions{};
  auto other = usual;
  other.norm = any_norm();
  other.feed_forward = any_feed_forward();
  other.residual = false;
  Block one(usual), two(other);
  initialise(*one, 5, 1);
  initialise(*two, 5, 1);
  const auto parameters = two->named_parameters();
  int shared = 0;
  for (const auto& parameter : one->named_parameters()) {
    if (parameter.key().starts_with("feed_forward.")) continue;
    CHECK(torch::equal(parameter.value(), parameters[parameter.key()]));
    ++shared;
  }
  CHECK(shared == 4);  // two projections, two norms
}

}  // namespace metaformer::test_block
