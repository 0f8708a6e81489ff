// The feed-forward language model; test_language_models.cpp has what it shares with others.

#include <cmath>

#include "model/feed_forward_model.h"
#include "model/parameters.h"
#include "model/small_models.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 13, batch = 2;

FeedForwardModelConfig config_of(std::int64_t window) {
  FeedForwardModelConfig config;
  config.window = window;
  config.width = 3;
  config.hidden = 5;
  config.context = 9;
  return config;
}

FeedForwardModelConfig any_config() { return config_of(GENERATE(1, 2, 4)); }

torch::Tensor random_ids(std::int64_t length) {
  torch::manual_seed(length);
  return torch::randint(vocabulary, {batch, length}, torch::kLong);
}

// y = b + U tanh(d + H x), token by token; segments_c: of every token of the row.
torch::Tensor by_formula(const FeedForwardModel& model, const FeedForwardModelConfig& config,
                         const torch::Tensor& ids_c, const std::vector<std::int64_t>& segments_c) {
  const auto weights = model.named_parameters();
  const auto table_vd = weights["token_embedding.weight"];
  const auto output_vh = config.embedding.tie ? table_vd : weights["head.weight"];
  std::vector<torch::Tensor> logits;
  for (std::int64_t t = 0; t < ids_c.size(0); ++t) {
    std::vector<torch::Tensor> parts;
    for (auto at = t - config.window + 1; at <= t; ++at) {
      const bool is_there =
          at >= 0 && segments_c[static_cast<std::size_t>(at)] == segments_c[static_cast<std::size_t>(t)];
      parts.push_back(is_there ? table_vd[ids_c[at].item<std::int64_t>()] : weights["padding_embedding.weight"][0]);
    }
    auto x_i = torch::cat(parts);
    if (config.embedding.scale == EmbeddingScale::sqrt_width) x_i = x_i * std::sqrt(3.0);
    const auto hidden_h = torch::tanh(weights["hidden_layer.bias"] + torch::mv(weights["hidden_layer.weight"], x_i));
    logits.push_back(weights["head.bias"] + torch::mv(output_vh, hidden_h));
  }
  return torch::stack(logits);
}

}  // namespace

TEST_CASE("a feed-forward model computes the formula of Bengio et al.", "[feed_forward_model]") {
  const torch::NoGradGuard no_grad;
  auto config = any_config();
  config.embedding.scale = GENERATE(EmbeddingScale::none, EmbeddingScale::sqrt_width);
  if (GENERATE(false, true)) {
    config.hidden = config.width;
    config.embedding.tie = true;
  }
  auto model = randomised(FeedForwardModel(config, vocabulary));
  const auto ids_bc = random_ids(7);
  const auto logits_bcv = model.evaluate({.ids_bc = ids_bc});
  for (std::int64_t row = 0; row < batch; ++row)
    CHECK(close(logits_bcv[row], by_formula(model, config, ids_bc[row], std::vector<std::int64_t>(7, 0))));
}

TEST_CASE("a feed-forward model sees nothing of other documents", "[feed_forward_model]") {
  const torch::NoGradGuard no_grad;
  const auto config = any_config();
  auto model = randomised(FeedForwardModel(config, vocabulary));
  const auto ids_bc = random_ids(8);
  const std::vector<std::int64_t> first = {4, 4, 5, 5, 5, 6, 6, 6}, second = {0, 1, 1, 1, 1, 1, -1, -1};
  const auto segments_bc = torch::stack({torch::tensor(first), torch::tensor(second)});
  const auto logits_bcv = model.evaluate({.ids_bc = ids_bc, .segments_bc = segments_bc});
  CHECK(close(logits_bcv[0], by_formula(model, config, ids_bc[0], first)));
  CHECK(close(logits_bcv[1], by_formula(model, config, ids_bc[1], second)));
}

TEST_CASE("the parameters of a feed-forward model start and decay by what they are", "[feed_forward_model]") {
  auto config = any_config();
  const bool tie = GENERATE(false, true);
  config.width = 16;
  config.hidden = tie ? 16 : 40;
  config.embedding.tie = tie;
  config.embedding.std = 0.3;
  const auto model = started(FeedForwardModel(config, vocabulary), 3);
  const double bound = 1 / std::sqrt(static_cast<double>(config.inputs()));
  for (const auto& [name, value, spec] : specified_parameters(model)) {
    INFO(name);
    CHECK((spec.decay == Decay::none) == (value.dim() < 2));
    CHECK((spec.decay == Decay::embeddings) == name.ends_with("embedding.weight"));
    CHECK(spec.hidden_matrices == (name == "hidden_layer.weight" ? 1 : 0));
    if (name == "token_embedding.weight") CHECK(value.std().item<double>() == Approx(0.3).epsilon(0.15));
    if (name == "hidden_layer.weight") {
      CHECK(value.abs().max().item<double>() <= bound);
      CHECK(value.std().item<double>() == Approx(bound / std::sqrt(3.0)).epsilon(0.1));
    }
    if (value.dim() < 2) CHECK(value.abs().max().item<double>() == 0);
  }
}

}  // namespace metaformer
