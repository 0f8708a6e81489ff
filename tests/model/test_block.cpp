// A block of every norm and feed-forward branch against its formula in float64.

#include "model/block.h"
#include "model/parameters.h"
#include "model/small_models.h"
#include "ops/autocast.h"
#include "support/any_block.h"

namespace metaformer {

namespace {

constexpr std::int64_t width = 12;

TransformerConfig config_of(const NormConfig& norm, const FeedForwardConfig& feed_forward, bool bias, bool residual) {
  auto config = small_transformer(IdentityOptions{}, width);  // only the block's own parts count
  config.norm = norm;
  config.feed_forward = feed_forward;
  config.bias = bias;
  config.residual = residual;
  return config;
}

Block random_block(const TransformerConfig& config) {
  torch::manual_seed(5);
  Block block(config);
  block->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : block->parameters()) parameter.normal_(0.3, 0.6);
  return block;
}

torch::Tensor forward(Block& block, const torch::Tensor& x_bcd) {
  Pass pass;
  return block->forward(x_bcd, {self_visibility(/*causal=*/true, torch::Tensor())}, pass);
}

// Parameters by name, in the formulas.
struct Formula {
  const TransformerConfig& config;
  torch::OrderedDict<std::string, torch::Tensor> parameters;

  torch::Tensor bias(const std::string& name) const {
    const auto* found = parameters.find(name + ".bias");
    return found != nullptr ? *found : torch::zeros(1, torch::kDouble);
  }
  torch::Tensor linear(const std::string& name, const torch::Tensor& x) const {
    return torch::matmul(x, parameters[name + ".weight"].t()) + bias(name);
  }
  torch::Tensor norm(const std::string& name, const torch::Tensor& x) const {
    const bool centred = is<LayerNormConfig>(config.norm);
    const auto y = centred ? x - x.mean(-1, true) : x;
    const auto size = (y.square().mean(-1, true) + epsilon_of(config.norm)).sqrt();
    return y / size * parameters[name + ".weight"] + bias(name);
  }
  static torch::Tensor activation(const ActivationConfig& f, const torch::Tensor& x) {
    if (is<ReluConfig>(f)) return x.clamp_min(0);
    if (is<ReluSquaredConfig>(f)) return x.clamp_min(0).square();
    if (is<GeluConfig>(f)) return x * (1 + torch::erf(x / std::sqrt(2.0))) / 2;
    if (is<GeluTanhConfig>(f)) return x * (1 + torch::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3)))) / 2;
    return x / (1 + (-std::get<SiluConfig>(f).beta * x).exp());
  }
  torch::Tensor feed_forward(const torch::Tensor& x) const {
    const auto up = linear("feed_forward.up", x);
    if (const auto* gated = std::get_if<GatedConfig>(&config.feed_forward)) {
      const auto hidden = up.size(-1) / 2;
      return linear("feed_forward.down",
                    activation(gated->activation, up.narrow(-1, 0, hidden)) * up.narrow(-1, hidden, hidden));
    }
    const auto& mlp = std::get<MlpConfig>(config.feed_forward);
    const auto y = linear("feed_forward.down", activation(mlp.activation, up));
    return mlp.output_activation ? activation(mlp.activation, y) : y;
  }
  template <class Branch>
  torch::Tensor branch(const std::string& name, const torch::Tensor& x, Branch f) const {
    const auto x_or_0 = config.residual ? x : torch::zeros_like(x);
    switch (position_of(config.norm)) {
      case NormPosition::pre:
        return x_or_0 + f(norm(name + "_norm", x));
      case NormPosition::post:
        return norm(name + "_norm", x_or_0 + f(x));
      case NormPosition::both:
        return x_or_0 + norm(name + "_output_norm", f(norm(name + "_norm", x)));
    }
    return {};
  }
  torch::Tensor operator()(const torch::Tensor& x) const {
    const auto mixed = branch("mixer", x, [](const auto& y) { return y; });
    return branch("feed_forward", mixed, [&](const auto& y) { return feed_forward(y); });
  }
};

}  // namespace

TEST_CASE("a block and its gradients in float32 and float64 are those of its formula in float64", "[block]") {
  const auto config = config_of(any_norm(), any_feed_forward(), GENERATE(false, true), GENERATE(true, false));
  const auto [type, tolerance] =
      GENERATE(table<torch::ScalarType, double>({{torch::kFloat, 1e-5}, {torch::kDouble, 1e-12}}));
  auto exact = random_block(config), block = random_block(config);
  block->to(type);
  const auto x_bcd = torch::randn({4, 5, width}, torch::kDouble), dy_bcd = torch::randn({4, 5, width}, torch::kDouble);
  const Formula formula{config, exact->named_parameters()};
  const auto expected_bcd = formula(x_bcd), y_bcd = forward(block, x_bcd.to(type));
  CHECK(relative_error(y_bcd, expected_bcd) < (type == torch::kDouble ? 1e-13 : tolerance));
  (expected_bcd * dy_bcd).sum().backward();
  (y_bcd * dy_bcd.to(type)).sum().backward();
  const auto expected = exact->named_parameters();
  for (const auto& parameter : block->named_parameters()) {
    CAPTURE(parameter.key());
    CHECK(relative_error(parameter.value().grad(), expected[parameter.key()].grad()) < tolerance);
  }
}

TEST_CASE("a block computes in bfloat16 and float16 about what it does in float32", "[block]") {
  const auto config = config_of(any_norm(), any_feed_forward(), GENERATE(false, true), GENERATE(true, false));
  const auto precision = GENERATE(Precision::bf16, Precision::fp16);
  auto block = random_block(config);
  block->to(torch::kFloat);
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : block->parameters()) parameter.mul_(0.4);  // twice squared, nothing exceeds float16
  }
  const auto x_bcd = torch::randn({4, 5, width});
  const auto gradient = [&](Precision type) {
    block->zero_grad();
    torch::Tensor y_bcd;
    {
      const AutocastScope scope(type, torch::kCPU);
      y_bcd = forward(block, x_bcd);
    }
    y_bcd.to(torch::kFloat).square().mean().backward();
    std::vector<torch::Tensor> parts;
    for (const auto& parameter : block->parameters()) parts.push_back(parameter.grad().flatten().clone());
    return torch::cat(parts);
  };
  const auto exact = gradient(Precision::fp32), rounded = gradient(precision);
  CHECK(relative_error(rounded, exact) < 0.05);
}

TEST_CASE("blocks that differ in their norms or feed-forward branch share every other initial weight", "[block]") {
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

}  // namespace metaformer
