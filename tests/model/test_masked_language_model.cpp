// Masked language models: hidden tokens are predicted from both sides.

#include "model/small_models.h"
#include "model/token_model.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer::test_masked_language_model {

namespace {

constexpr std::int64_t context = 12;

TransformerConfig config_of(const MixerConfig& mixer, const PositionsConfig& positions) {
  auto config = small_transformer(mixer, 8, context);
  config.positions = positions;
  return config;
}

MaskedLanguageModel random(const TransformerConfig& config) {
  return randomised(MaskedLanguageModel(config, vocabulary), 0.4);
}

torch::Tensor ids_with_masks(std::int64_t rows) { return random_ids(rows, context, vocabulary + 1); }

}  // namespace

TEST_CASE("a masked language model has logits for the vocabulary, and one more input token", "[masking]") {
  auto config = config_of(MetricOptions{}, LearnedPositionsConfig{});
  config.embedding.tie = GENERATE(true, false);
  auto model = random(config);
  const torch::NoGradGuard no_grad;
  const auto ids_bc = torch::full({2, 5}, vocabulary, torch::kLong);
  CHECK(model.evaluate({.ids_bc = ids_bc}).sizes() == torch::IntArrayRef({2, 5, vocabulary}));
  CHECK_THROWS(model.evaluate({.ids_bc = ids_bc + 1}));
  const auto weights = model.named_parameters();
  const auto& table_vd = weights["transformer.token_embedding.weight"];
  CHECK(table_vd.size(0) == vocabulary + 1);
  Pass pass;
  const auto hidden_bcd = model.hidden({.ids_bc = ids_bc}, nullptr, pass);
  const auto head_vd = config.embedding.tie ? table_vd.narrow(0, 0, vocabulary) : weights["head.weight"];
  CHECK(close(model.logits_of(hidden_bcd), hidden_bcd.matmul(head_vd.t())));
  CHECK(model.decoder(1) == nullptr);
  CHECK_THROWS_AS(model.new_state(1, 5), Error);
}

TEST_CASE("all initial weights except the table with the mask token equal those of a causal model", "[masking]") {
  const auto config = config_of(MetricOptions{}, LearnedPositionsConfig{});
  const auto masked = started(MaskedLanguageModel(config, vocabulary), 7);
  const auto causal = started(Gpt(config, vocabulary), 7);
  const auto of_masked = masked.named_parameters(), of_causal = causal.named_parameters();
  CHECK(of_masked.keys() == of_causal.keys());
  for (const auto& parameter : of_masked)
    if (parameter.key() != "transformer.token_embedding.weight")
      CHECK(torch::equal(parameter.value(), of_causal[parameter.key()]));
}

TEST_CASE("a token sees both sides with every kind of positions", "[masking]") {
  const auto positions = any_positions();
  auto model = random(config_of(ScaledDotProductOptions{}, positions));
  const torch::NoGradGuard no_grad;
  const auto ids_bc = ids_with_masks(1);
  for (const std::int64_t changed : {0L, context - 1}) {
    auto other_bc = ids_bc.clone();
    other_bc[0][changed] = (ids_bc[0][changed].item<std::int64_t>() + 1) % vocabulary;
    const auto before = model.evaluate({.ids_bc = ids_bc}), after = model.evaluate({.ids_bc = other_bc});
    CHECK((before - after).abs().amax(2).min().item<double>() > 1e-9);
  }
}

TEST_CASE("padding and other documents do not change logits", "[masking]") {
  const auto mixer = any_mixer();
  if (chooses_by_whole_sequence(mixer)) return does_not_apply("its chunks are made of all tokens of a row");
  const auto positions = any_positions();
  if (act_on_scores(positions) && !has_scores(mixer)) return does_not_apply("no scores");
  CAPTURE(kind_of(mixer), kind_of(positions));
  auto model = random(config_of(mixer, positions));
  const torch::NoGradGuard no_grad;
  const auto one = row({3, 13, 4, 1}), two = row({5, 13, 2});
  const auto alone = model.evaluate({.ids_bc = one}), other = model.evaluate({.ids_bc = two});
  const Batch packed{.ids_bc = torch::cat({one, two, row({7, 7})}, 1),
                     .segments_bc = row({0, 0, 0, 0, 1, 1, 1, -1, -1}),
                     .restarts = true};
  const auto logits = model.evaluate(packed);
  CHECK(close(logits.narrow(1, 0, 4), alone));
  CHECK(close(logits.narrow(1, 4, 3), other));
}

TEST_CASE("logits only at the places of targets, and their gradients, equal those of the whole row", "[masking]") {
  auto config = config_of(any_mixer(), LearnedPositionsConfig{});
  config.embedding.tie = GENERATE(true, false);
  auto model = random(config);
  Batch batch{.ids_bc = ids_with_masks(3)};
  batch.targets_bc = torch::full_like(batch.ids_bc, -1);
  batch.places_t = torch::tensor({2, 3, 11, 24, 35, -1, -1, -1});
  const auto real_t = batch.places_t.narrow(0, 0, 5);
  batch.targets_bc.flatten().index_put_({real_t}, torch::tensor({1, 12, 0, 4, 9}));
  CHECK(wanted_targets_t(batch).equal(torch::tensor({1, 12, 0, 4, 9, -1, -1, -1})));
  const auto gradients_of = [&](const torch::Tensor& logits_tv, const torch::Tensor& targets_t) {
    model.zero_grad();
    at::cross_entropy_loss(logits_tv, targets_t, {}, at::Reduction::Sum, -1).backward();
    std::vector<torch::Tensor> all;
    for (const auto& parameter : model.parameters())
      if (parameter.grad().defined()) all.push_back(parameter.grad().clone().flatten());
    return torch::cat(all);
  };
  Pass pass;
  const auto wanted_tv = model.forward(batch, nullptr, pass);
  REQUIRE(wanted_tv.sizes() == torch::IntArrayRef({8, vocabulary}));
  const auto of_wanted = gradients_of(wanted_tv, wanted_targets_t(batch));
  const auto targets_t = batch.targets_bc.flatten();
  batch.places_t = torch::Tensor();
  const auto all_bcv = model.forward(batch, nullptr, pass);
  CHECK(close(wanted_tv.narrow(0, 0, 5), all_bcv.flatten(0, 1).index_select(0, real_t)));
  CHECK(close(of_wanted, gradients_of(all_bcv.flatten(0, 1), targets_t)));
}

}  // namespace metaformer::test_masked_language_model
