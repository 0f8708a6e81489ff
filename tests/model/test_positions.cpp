// Positions in whole models. Their formulas are in tests/python/reference_model.py.

#include "model/classifier.h"
#include "model/small_models.h"
#include "model/token_model.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer::test_positions {

namespace {

TransformerConfig config_of(const PositionsConfig& positions, const MixerConfig& mixer = ScaledDotProductOptions{}) {
  auto config = small_transformer(mixer);
  config.positions = positions;
  return config;
}

}  // namespace

TEST_CASE("generation with any positions gives the logits of the whole sequence", "[positions]") {
  auto model = randomised(Gpt(config_of(any_positions(), any_mixer_with_scores()), vocabulary));
  const torch::NoGradGuard no_grad;
  const auto ids_bc = random_ids(2, 12);
  const auto whole_bcv = model.evaluate({.ids_bc = ids_bc});
  const auto state = model.new_state(2, 12);
  CHECK(close(read(model, {.ids_bc = ids_bc}, *state, {3, 1, 1, 4, 1, 2}), whole_bcv));
}

TEST_CASE("the order of tokens has an effect with every kind of positions except none", "[positions]") {
  const auto positions = any_positions();
  auto model = randomised(Classifier(config_of(positions), MeanPooledHeadConfig{}, vocabulary, 3));
  const torch::NoGradGuard no_grad;
  const auto ids_bc = torch::tensor({{1, 2, 3, 4, 5, 6}}), other_bc = torch::tensor({{6, 2, 4, 3, 5, 1}});
  const bool equal = close(model.evaluate({.ids_bc = ids_bc}), model.evaluate({.ids_bc = other_bc}));
  CHECK(equal == is<NoPositionsConfig>(positions));
}

TEST_CASE("weights fit a model with a longer context unless positions are learned", "[positions]") {
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

}  // namespace metaformer::test_positions
