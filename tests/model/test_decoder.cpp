// Decoders against the model's own forward pass over the whole sequence, in float64.

#include "model/small_models.h"
#include "model/token_model.h"
#include "support/any_block.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"
#include "support/threads.h"

namespace metaformer::test_decoder {

namespace {

constexpr double tolerance = 2e-6;  // relative to the norm of a row of logits

TransformerConfig config_of(const MixerConfig& mixer) { return small_transformer(mixer, 12, 20); }

// The same weights in float32 and in float64.
struct Models {
  explicit Models(const TransformerConfig& config) : narrow(config, vocabulary), wide(config, vocabulary) {
    wide.to(torch::kDouble);
    torch::manual_seed(11);
    const torch::NoGradGuard no_grad;
    const auto from = narrow.parameters(), to = wide.parameters();
    for (std::size_t i = 0; i < from.size(); ++i) {
      const bool is_matrix = from[i].dim() > 1;
      from[i].normal_(is_matrix ? 0 : 0.7, is_matrix ? 1 / std::sqrt(static_cast<double>(from[i].size(-1))) : 0.3);
      to[i].copy_(from[i]);
    }
  }
  Gpt narrow, wide;
};

// Feeds `ids_bc` through forward up to `prompt` tokens, then through the decoder; compares every row of logits.
double greatest_error(Models& models, const torch::Tensor& ids_bc, std::int64_t prompt, int threads = 1) {
  const torch::NoGradGuard no_grad;
  const auto batch = ids_bc.size(0), length = ids_bc.size(1);
  const auto expected_bcv = models.wide.evaluate({.ids_bc = ids_bc});
  const auto state = models.narrow.new_state(batch, models.narrow.config().context);
  models.narrow.evaluate({.ids_bc = ids_bc.narrow(1, 0, prompt)}, state.get());
  const auto decoder = models.narrow.decoder(batch);
  decoder->resume(*state);
  const Threads scope(threads);
  double greatest = 0;
  for (auto place = prompt; place < length; ++place) {
    const auto logits_bv = next_logits(*decoder, ids_bc.select(1, place));
    greatest = std::max(greatest, relative_error(logits_bv, expected_bcv.select(1, place)));
  }
  return greatest;
}

void round_linear_layers(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& module : model.modules(/*include_self=*/false))
    if (const auto* layer = dynamic_cast<LinearImpl*>(module.get()))
      layer->weight().copy_(layer->weight().to(torch::kBFloat16));
}

// The logits of a decoder of `model` for all tokens but the first three, which `reader` reads.
torch::Tensor decoded(Gpt& reader, const Gpt& model, const torch::Tensor& ids_bc, WeightPrecision precision) {
  const torch::NoGradGuard no_grad;
  const auto state = reader.new_state(ids_bc.size(0), reader.config().context);
  reader.evaluate({.ids_bc = ids_bc.narrow(1, 0, 3)}, state.get());
  const auto decoder = model.decoder(ids_bc.size(0), precision);
  decoder->resume(*state);
  std::vector<torch::Tensor> logits;
  for (std::int64_t place = 3; place < ids_bc.size(1); ++place)
    logits.push_back(next_logits(*decoder, ids_bc.select(1, place)));
  return torch::stack(logits);
}

}  // namespace

TEST_CASE("a decoder gives the logits of the whole sequence", "[decoder]") {
  const auto config = config_of(any_mixer_with_decoder());
  const auto batch = GENERATE(1, 3);
  Models models(config);
  CAPTURE(batch);
  CHECK(greatest_error(models, random_ids(batch, config.context), 1) < tolerance);
  CHECK(greatest_error(models, random_ids(batch, config.context), 7) < tolerance);
}

TEST_CASE("a decoder supports every block, feed-forward branch and head", "[decoder]") {
  auto config = config_of(MetricOptions{});
  config.bias = GENERATE(false, true);
  config.norm = any_norm();
  if (GENERATE(false, true)) {
    config.feed_forward = any_feed_forward();
  } else {
    if (GENERATE(false, true)) std::visit([](auto& options) { options.final = false; }, config.norm);
    config.residual = GENERATE(false, true);
    config.embedding.tie = GENERATE(false, true);
    config.positions = GENERATE(PositionsConfig{NoPositionsConfig{}}, PositionsConfig{LearnedPositionsConfig{}});
  }
  Models models(config);
  CHECK(greatest_error(models, random_ids(2, config.context), 3) < tolerance);
}

TEST_CASE("a decoder supports the positions, or the model has no decoder", "[decoder]") {
  const auto positions = any_positions();
  auto config = config_of(
      GENERATE(MixerConfig(ScaledDotProductOptions{.qk_norm = true}),
               MixerConfig(ScaledDotProductOptions{.qk_norm = true, .learned_temperature = true}),
               MixerConfig(ScaledDotProductOptions{.qk_norm = true, .key_value_heads = 1, .sinks = true}),
               MixerConfig(QuadraticOptions{}), MixerConfig(QuadraticOptions{.form = QuadraticForm::full}),
               MixerConfig(MetricOptions{.values = MixerValues::own}),
               MixerConfig(MetricOptions{.values = MixerValues::unnormalised, .qk_norm = true}),
               MixerConfig(MetricOptions{.values = MixerValues::own, .qk_norm = true, .learned_temperature = true}),
               MixerConfig(MetricOptions{.values = MixerValues::own, .fixed_norm = true}),
               MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance})));
  config.positions = positions;
  config.embedding.scale = EmbeddingScale::sqrt_width;
  Models models(config);
  const bool unknown = is<T5PositionsConfig>(positions) || is<ShawPositionsConfig>(positions) ||
                       is<TransformerXlPositionsConfig>(positions);
  REQUIRE((models.narrow.decoder(2) == nullptr) == unknown);
  if (!unknown) CHECK(greatest_error(models, random_ids(2, config.context), 3) < tolerance);
}

TEST_CASE("a decoder gives the same logits for rows of any width and with any number of threads", "[decoder]") {
  auto config = config_of(GENERATE(MixerConfig(ScaledDotProductOptions{}), MixerConfig(QuadraticOptions{}),
                                   MixerConfig(QuadraticOptions{.form = QuadraticForm::full})));
  config.heads = 3;
  config.width = 3 * GENERATE(1, 15, 16, 17, 70, 128);
  config.context = 40;
  Models models(config);
  CAPTURE(config.width);
  const auto ids_bc = random_ids(5, config.context);
  const double error = greatest_error(models, ids_bc, 4);
  CHECK(error == greatest_error(models, ids_bc, 4, 2));
  CHECK(error < tolerance);
}

TEST_CASE("a decoder in bfloat16 gives the bits of one in float32 whose linear layers are rounded", "[decoder]") {
  auto config = config_of(any_mixer_with_decoder());
  config.bias = GENERATE(false, true);
  config.embedding.tie = false;  // an embedding is not rounded
  Models models(config), rounded(config);
  round_linear_layers(rounded.narrow);
  const auto ids_bc = random_ids(GENERATE(1, 3), config.context);
  const auto logits = [&](const Models& of, WeightPrecision precision) {
    return decoded(models.narrow, of.narrow, ids_bc, precision);
  };
  const auto expected = logits(rounded, WeightPrecision::fp32);
  CHECK(torch::equal(logits(models, WeightPrecision::bf16), expected));
  CHECK(torch::equal(logits(rounded, WeightPrecision::bf16), expected));
  CHECK_FALSE(torch::equal(logits(models, WeightPrecision::fp32), expected));
}

TEST_CASE("a decoder goes on after a forward pass has extended its state or started again", "[decoder]") {
  const auto config = config_of(any_mixer_with_decoder());
  Models models(config);
  const torch::NoGradGuard no_grad;
  const auto ids_bc = random_ids(1, 12);
  const auto expected_bcv = models.wide.evaluate({.ids_bc = ids_bc});
  const auto state = models.narrow.new_state(1, config.context);
  const auto decoder = models.narrow.decoder(1);
  const auto step = [&](std::int64_t place) {
    CHECK(relative_error(next_logits(*decoder, ids_bc.select(1, place)), expected_bcv.select(1, place)) < tolerance);
  };
  for (int round = 0; round < 2; ++round) {
    models.narrow.evaluate({.ids_bc = ids_bc.narrow(1, 0, 2)}, state.get());
    decoder->resume(*state);
    for (std::int64_t place = 2; place < 5; ++place) step(place);
    models.narrow.evaluate({.ids_bc = ids_bc.narrow(1, 5, 4)}, state.get());
    decoder->resume(*state);
    for (std::int64_t place = 9; place < 12; ++place) step(place);
    state->reset();
  }
}

TEST_CASE("a full state is an error of the decoder, and float64 and LSH attention have no decoder", "[decoder]") {
  Models models(config_of(ScaledDotProductOptions{}));
  const torch::NoGradGuard no_grad;
  CHECK(models.wide.decoder(1) == nullptr);
  CHECK(Models(config_of(LshOptions{})).narrow.decoder(1) == nullptr);
  const auto state = models.narrow.new_state(1, 20);
  models.narrow.evaluate({.ids_bc = random_ids(1, 19)}, state.get());
  const auto decoder = models.narrow.decoder(1);
  decoder->resume(*state);
  const std::vector<std::int32_t> token = {1};
  decoder->step(token);
  CHECK_THROWS_WITH(decoder->step(token), Mentions("21 tokens|model.context 20"));
}

}  // namespace metaformer::test_decoder
