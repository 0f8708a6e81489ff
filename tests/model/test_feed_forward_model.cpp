// The feed-forward language model.

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "model/feed_forward_model.h"
#include "model/memory_estimate.h"
#include "model/parameters.h"
#include "support/torch_catch.h"

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

// Random weights, in double.
FeedForwardModel model_of(const FeedForwardModelConfig& config) {
  FeedForwardModel model(config, vocabulary);
  model.to(torch::kDouble);
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) parameter.normal_(0, 0.5);
  return model;
}

torch::Tensor random_ids(std::int64_t length) {
  torch::manual_seed(length);
  return torch::randint(vocabulary, {batch, length}, torch::kLong);
}

bool close(const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 1e-10, 1e-12); }

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
  auto model = model_of(config);
  const auto ids_bc = random_ids(7);
  const auto logits_bcv = model.evaluate({.ids_bc = ids_bc});
  for (std::int64_t row = 0; row < batch; ++row)
    CHECK(close(logits_bcv[row], by_formula(model, config, ids_bc[row], std::vector<std::int64_t>(7, 0))));
}

TEST_CASE("a feed-forward model sees nothing of other documents", "[feed_forward_model]") {
  const torch::NoGradGuard no_grad;
  const auto config = any_config();
  auto model = model_of(config);
  const auto ids_bc = random_ids(8);
  const std::vector<std::int64_t> first = {4, 4, 5, 5, 5, 6, 6, 6}, second = {0, 1, 1, 1, 1, 1, -1, -1};
  const auto segments_bc = torch::stack({torch::tensor(first), torch::tensor(second)});
  const auto logits_bcv = model.evaluate({.ids_bc = ids_bc, .segments_bc = segments_bc});
  CHECK(close(logits_bcv[0], by_formula(model, config, ids_bc[0], first)));
  CHECK(close(logits_bcv[1], by_formula(model, config, ids_bc[1], second)));
  // In two parts, with what the state has of the first.
  const auto state = model.new_state(batch, 1);
  const auto part = [&](std::int64_t at, std::int64_t count) {
    return model.evaluate({.ids_bc = ids_bc.narrow(1, at, count), .segments_bc = segments_bc.narrow(1, at, count)},
                          state.get());
  };
  CHECK(close(torch::cat({part(0, 3), part(3, 5)}, 1), logits_bcv));
}

TEST_CASE("a feed-forward model generates what the whole sequence gives", "[feed_forward_model]") {
  const torch::NoGradGuard no_grad;
  auto model = model_of(any_config());
  CHECK(model.has_endless_state());
  CHECK_FALSE(model.remembers());
  CHECK(model.new_memory() == nullptr);
  const auto ids_bc = random_ids(17);
  const auto whole_bcv = model.evaluate({.ids_bc = ids_bc});
  const auto state = model.new_state(batch, 1);
  std::int64_t done = 0;
  for (const std::int64_t count : {3, 1, 1, 8, 1, 3}) {
    const auto part_bcv = model.evaluate({.ids_bc = ids_bc.narrow(1, done, count)}, state.get());
    CHECK(close(part_bcv, whole_bcv.narrow(1, done, count)));
    done += count;
    CHECK(state->length() == done);
  }
  CHECK(close(model.evaluate({.ids_bc = ids_bc, .begins = true}, state.get()), whole_bcv));
}

TEST_CASE("a token of a feed-forward model changes the logits of its window only", "[feed_forward_model]") {
  const torch::NoGradGuard no_grad;
  const auto config = any_config();
  auto model = model_of(config);
  const auto ids_bc = random_ids(9);
  const auto logits_bcv = model.evaluate({.ids_bc = ids_bc});
  for (std::int64_t changed = 0; changed < 9; ++changed) {
    auto other_bc = ids_bc.clone();
    other_bc.select(1, changed).add_(1).remainder_(vocabulary);
    const auto other_bcv = model.evaluate({.ids_bc = other_bc});
    for (std::int64_t c = 0; c < 9; ++c)
      CHECK(torch::equal(logits_bcv.select(1, c), other_bcv.select(1, c)) ==
            (c < changed || c >= changed + config.window));
  }
}

TEST_CASE("rows of a feed-forward model do not know of each other", "[feed_forward_model]") {
  const torch::NoGradGuard no_grad;
  auto model = model_of(any_config());
  const auto ids_bc = random_ids(7);
  const auto together_bcv = model.evaluate({.ids_bc = ids_bc});
  for (std::int64_t row = 0; row < batch; ++row)
    CHECK(close(model.evaluate({.ids_bc = ids_bc.narrow(0, row, 1)})[0], together_bcv[row]));
}

TEST_CASE("the gradients of a feed-forward model are finite differences", "[feed_forward_model]") {
  auto model = model_of(any_config());
  const Batch given{.ids_bc = random_ids(7)};
  const auto loss = [&] { return model.evaluate(given).square().mean(); };
  loss().backward();
  constexpr double small = 1e-5;
  for (auto& parameter : model.named_parameters()) {
    INFO(parameter.key());
    auto& value = parameter.value();
    const torch::NoGradGuard no_grad;
    for (std::int64_t at = 0; at < value.numel(); at += 1 + value.numel() / 7) {
      auto entry = value.view(-1).select(0, at);
      const double original = entry.item<double>();
      entry.fill_(original + small);
      const double above = loss().item<double>();
      entry.fill_(original - small);
      const double below = loss().item<double>();
      entry.fill_(original);
      const double expected = (above - below) / (2 * small);
      CHECK(std::abs(value.grad().view(-1)[at].item<double>() - expected) <= 1e-8 + 1e-6 * std::abs(expected));
    }
  }
}

TEST_CASE("the parameters of a feed-forward model are counted, and start and decay by what they are",
          "[feed_forward_model]") {
  auto config = any_config();
  const bool tie = GENERATE(false, true);
  config.width = 16;
  config.hidden = tie ? 16 : 40;
  config.embedding.tie = tie;
  config.embedding.std = 0.3;
  FeedForwardModel model(config, vocabulary);
  ExperimentConfig experiment;
  experiment.model = config;
  CHECK(count_parameters(model).all == count_parameters(experiment, vocabulary, 2));
  initialise(model, 3);
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

TEST_CASE("dropout of a feed-forward model is on its inputs and its hidden layer, from the pass's numbers",
          "[feed_forward_model]") {
  auto config = config_of(4);
  config.dropout = 0.5;
  config.embedding.dropout = GENERATE(0.0, 0.25);
  FeedForwardModel model(config, vocabulary);
  initialise(model, 3);
  const auto generator = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const Batch given{.ids_bc = random_ids(9)};
  const auto before = generator();
  StepPasses passes(1, torch::kCPU);
  const auto hidden = [&](std::int64_t of_step) {
    passes.set_step(of_step);
    auto pass = passes.pass(0);
    auto h_bch = model.hidden(given, nullptr, pass);
    CHECK(pass.random.place() == 2 + (config.embedding.dropout > 0 ? 1 : 0));
    return h_bch;
  };
  const auto h_bch = hidden(1);
  h_bch.sum().backward();
  CHECK(torch::equal(generator(), before));
  CHECK(torch::equal(hidden(1), h_bch));
  CHECK_FALSE(torch::equal(hidden(2), h_bch));
  CHECK((h_bch == 0).to(torch::kDouble).mean().item<double>() == Approx(0.5).margin(0.2));
}

}  // namespace metaformer
