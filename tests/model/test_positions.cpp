// How a whole model knows where its tokens stand.

#include <cmath>

#include "model/classifier.h"
#include "model/parameters.h"
#include "model/small_models.h"
#include "model/token_model.h"
#include "support/any_positions.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 13;

TransformerConfig config_of(const PositionsConfig& positions, const MixerConfig& mixer = ScaledDotProductOptions{}) {
  auto config = small_transformer(mixer);
  config.positions = positions;
  return config;
}

torch::Tensor random_ids(std::int64_t rows, std::int64_t length) {
  return torch::randint(vocabulary, {rows, length}, torch::kLong);
}

}  // namespace

TEST_CASE("generating with any positions gives the logits of the whole sequence", "[positions]") {
  const auto mixer = GENERATE(MixerConfig(ScaledDotProductOptions{}), MixerConfig(MetricOptions{}),
                              MixerConfig(QuadraticOptions{.form = QuadraticForm::full}));
  auto model = randomised(Gpt(config_of(any_positions(), mixer), vocabulary));
  const torch::NoGradGuard no_grad;
  const auto ids_bc = random_ids(2, 12);
  const auto whole_bcv = model.evaluate({.ids_bc = ids_bc});
  const auto state = model.new_state(2, 12);
  CHECK(close(read(model, {.ids_bc = ids_bc}, *state, {3, 1, 1, 4, 1, 2}), whole_bcv));
}

TEST_CASE("the order of tokens matters to every kind of positions but none", "[positions]") {
  const auto positions = any_positions();
  auto model = randomised(Classifier(config_of(positions), MeanPooledHeadConfig{}, vocabulary, 3));
  const torch::NoGradGuard no_grad;
  const auto ids_bc = torch::tensor({{1, 2, 3, 4, 5, 6}}), other_bc = torch::tensor({{6, 2, 4, 3, 5, 1}});
  const bool equal = close(model.evaluate({.ids_bc = ids_bc}), model.evaluate({.ids_bc = other_bc}));
  CHECK(equal == is<NoPositionsConfig>(positions));
}

TEST_CASE("weights fit a model of a longer context unless positions are learned", "[positions]") {
  const auto positions = any_positions();
  auto config = config_of(positions);
  auto trained = randomised(Gpt(config, vocabulary));
  config.context = 30;
  Gpt longer(config, vocabulary);
  longer.to(torch::kDouble);
  if (is<LearnedPositionsConfig>(positions)) {
    CHECK_THROWS(copy_by_name(named_state(trained), named_state(longer), "a checkpoint"));
    return;
  }
  copy_by_name(named_state(trained), named_state(longer), "a checkpoint");
  const torch::NoGradGuard no_grad;
  const auto ids_bc = random_ids(1, 30);
  CHECK(close(longer.evaluate({.ids_bc = ids_bc}).narrow(1, 0, 12),
              trained.evaluate({.ids_bc = ids_bc.narrow(1, 0, 12)})));
}

TEST_CASE("sinusoids are those of 2017 and no parameter", "[positions]") {
  const auto config = config_of(SinusoidalPositionsConfig{.base = 10000});
  Gpt model(config, vocabulary), without(config_of(NoPositionsConfig{}), vocabulary);
  CHECK(model.named_parameters().keys() == without.named_parameters().keys());
  const TransformerImpl trunk(config, vocabulary, /*causal=*/true);
  const auto table_cd = trunk.position_table_cd(12);
  for (std::int64_t c = 0; c < 12; ++c)
    for (std::int64_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(c) / std::pow(10000.0, 2.0 * static_cast<double>(i) / 8);
      CHECK(table_cd[c][2 * i].item<float>() == Approx(std::sin(angle)).margin(1e-7));
      CHECK(table_cd[c][2 * i + 1].item<float>() == Approx(std::cos(angle)).margin(1e-7));
    }
}

TEST_CASE("embeddings are multiplied by the root of the width before positions are added", "[positions]") {
  auto config = config_of(GENERATE(PositionsConfig(SinusoidalPositionsConfig{}), PositionsConfig(NoPositionsConfig{})),
                          NoneOptions{});
  config.embedding.tie = false;
  auto plain = randomised(Gpt(config, vocabulary));
  config.embedding.scale = EmbeddingScale::sqrt_width;
  auto scaled = randomised(Gpt(config, vocabulary));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : scaled.named_parameters())
    if (parameter.key().ends_with("token_embedding.weight")) parameter.value().div_(std::sqrt(8.0));
  const auto ids_bc = random_ids(2, 12);
  CHECK(close(scaled.evaluate({.ids_bc = ids_bc}), plain.evaluate({.ids_bc = ids_bc})));
}

}  // namespace metaformer
