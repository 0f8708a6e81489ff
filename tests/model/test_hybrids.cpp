// Models with different mixers, without feed-forward branches, or with a convolution before the mixer.

#include "model/classifier.h"
#include "model/small_models.h"
#include "model/stream_probe.h"
#include "model/token_model.h"
#include "support/any_mixer.h"

namespace metaformer::test_hybrids {

namespace {

// One mixer of each family, one of them in two blocks.
TransformerConfig hybrid(std::int64_t width = 8, std::int64_t context = 12) {
  auto config = small_transformer(MetricOptions{}, width, context);
  config.layers = 6;
  config.mixers = {{.mixer = GatedDeltaNetOptions{}, .layers = 2},
                   {.mixer = ScaledDotProductOptions{}},
                   {.mixer = ShortConvolutionOptions{}},
                   {.mixer = AveragePoolingOptions{}}};
  return config;
}

}  // namespace

TEST_CASE("the blocks of a model take the mixers of a list by turns", "[hybrids]") {
  auto config = hybrid();
  std::string kinds;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    kinds += std::string(kind_of(config.mixer_of(layer))) + " ";
  CHECK(kinds ==
        "gated_delta_net gated_delta_net scaled_dot_product short_convolution average_pooling gated_delta_net ");
  CHECK(config.mixer_names() == "gated_delta_net x 2, scaled_dot_product, short_convolution, average_pooling");
  const Gpt model(config, vocabulary);
  const auto names = model.named_parameters();
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const auto prefix = fmt::format("transformer.blocks.{}.mixer.", layer);
    CHECK(names.contains(prefix + "log_rate") == is<GatedDeltaNetOptions>(config.mixer_of(layer)));
    CHECK(names.contains(prefix + "query_key_value.weight") == is<ScaledDotProductOptions>(config.mixer_of(layer)));
  }
  config.mixers = {{.mixer = MetricOptions{}, .layers = 6}};
  auto plain = config;
  plain.mixers.clear();
  const auto ids_bc = random_ids(2, 12);
  CHECK(torch::equal(started(Gpt(config, vocabulary)).evaluate({.ids_bc = ids_bc}),
                     started(Gpt(plain, vocabulary)).evaluate({.ids_bc = ids_bc})));
}

TEST_CASE("a hybrid generates the same text as one pass over the whole text", "[hybrids]") {
  auto config = hybrid();
  config.convolution = GENERATE(0, 4);
  if (GENERATE(false, true)) config.feed_forward = NoFeedForwardConfig{};
  auto model = randomised(Gpt(config, vocabulary), 0.3);
  const torch::NoGradGuard no_grad;
  const Batch batch{.ids_bc = random_ids(3, 12)};
  const auto state = model.new_state(3, config.context);
  CHECK(relative_error(read(model, batch, *state, {5, 1, 4, 2}), model.evaluate(batch)) < 1e-12);
  const auto other = model.new_state(3, config.context);
  other->load(copy_of(*state), "a file");
  CHECK(other->length() == 12);
}

TEST_CASE("a hybrid with memory sees earlier segments through every one of its mixers", "[hybrids]") {
  constexpr std::int64_t segment = 5;
  auto config = hybrid(8, segment);
  config.memory = 3 * segment;
  auto model = randomised(Gpt(config, vocabulary));
  auto whole_config = config;
  whole_config.memory = 0;
  whole_config.context = 4 * segment;
  auto whole = randomised(Gpt(whole_config, vocabulary));
  for (auto* each : {&model, &whole}) each->eval();
  config.positions = NoPositionsConfig{};
  const torch::NoGradGuard no_grad;
  // Without learned positions both models have the same weights.
  const auto without_positions = [&](TransformerConfig from) {
    from.positions = NoPositionsConfig{};
    return randomised(Gpt(from, vocabulary));
  };
  auto parts = without_positions(config), one = without_positions(whole_config);
  const auto ids_bc = random_ids(2, 4 * segment);
  const auto segments_bc = GENERATE(false, true) ? documents({{7, 9, 4}, {12, 8}}) : torch::Tensor();
  const auto memory = GENERATE(false, true) ? parts.new_memory() : parts.new_state(2, segment);
  const auto read_bcv =
      read(parts, {.ids_bc = ids_bc, .segments_bc = segments_bc}, *memory, std::vector<std::int64_t>(4, segment));
  CHECK(close(read_bcv, one.evaluate({.ids_bc = ids_bc, .segments_bc = segments_bc})));
  const auto saved = copy_of(*memory);
  const auto loaded = dynamic_cast<const ModelState*>(memory.get()) != nullptr && memory->length() > 0;
  CHECK(loaded);
  memory->load(saved, "a file");
}

TEST_CASE("the first block with RWKV-7 does not mix its values with those of an earlier block, wherever it is",
          "[hybrids]") {
  auto config = small_transformer(Rwkv7Options{});
  config.layers = 3;
  config.mixers = {{.mixer = ScaledDotProductOptions{}, .layers = 1}, {.mixer = Rwkv7Options{}, .layers = 2}};
  const auto names = Gpt(config, vocabulary).named_parameters().keys();
  const auto has = [&](const std::string& block) {
    return std::ranges::any_of(names,
                               [&](const auto& name) { return name.find(block + ".mixer.first_share") != name.npos; });
  };
  CHECK_FALSE(has("blocks.1"));
  CHECK(has("blocks.2"));
}

TEST_CASE("a convolution before mixers stays within a text, in both directions", "[hybrids]") {
  auto config = hybrid();
  config.convolution = 3;
  config.positions = NoPositionsConfig{};
  if (GENERATE(false, true)) config.feed_forward = NoFeedForwardConfig{};
  const bool causal = GENERATE(false, true);
  Transformer model(config, vocabulary, causal);
  randomise(*model, 0.3);
  const torch::NoGradGuard no_grad;
  const auto ids_bc = random_ids(1, 12);
  const auto segments_bc = documents({{5, 4, 3}});
  Pass pass;
  const auto packed_bcd = model->forward({.ids_bc = ids_bc, .segments_bc = segments_bc}, nullptr, pass);
  std::int64_t first = 0;
  for (const std::int64_t length : {5, 4, 3}) {
    const auto alone_bcd = model->forward({.ids_bc = ids_bc.narrow(1, first, length)}, nullptr, pass);
    CHECK(close(packed_bcd.narrow(1, first, length), alone_bcd));
    first += length;
  }
  // A change affects later tokens and, without a causal mask, earlier ones.
  auto changed_bc = ids_bc.clone();
  changed_bc.select(1, 6).add_(1).remainder_(vocabulary);
  const auto changed_bcd = model->forward({.ids_bc = changed_bc, .segments_bc = segments_bc}, nullptr, pass);
  CHECK(torch::equal(changed_bcd.select(1, 5), packed_bcd.select(1, 5)) == causal);
  CHECK_FALSE(torch::equal(changed_bcd.select(1, 7), packed_bcd.select(1, 7)));
  CHECK(close(changed_bcd.narrow(1, 9, 3),
              packed_bcd.narrow(1, 9, 3)));  // only close, because sums of decays are over all tokens
}

TEST_CASE("gradients of a hybrid equal finite differences", "[hybrids]") {
  auto config = hybrid();
  config.convolution = 3;
  if (GENERATE(false, true)) config.feed_forward = NoFeedForwardConfig{};
  auto model = randomised(Gpt(config, vocabulary), 0.3);
  const auto ids_bc = random_ids(2, 9);
  check_gradients(model, [&] { return model.evaluate({.ids_bc = ids_bc}).square().mean(); });
}

TEST_CASE("without a feed-forward branch a block has only its mixer, also in the decoder", "[hybrids]") {
  auto config = small_transformer(ScaledDotProductOptions{});
  config.feed_forward = NoFeedForwardConfig{};
  auto model = started(Gpt(config, vocabulary));
  for (const auto& parameter : model.named_parameters())
    CHECK(parameter.key().find("feed_forward") == std::string::npos);
  const torch::NoGradGuard no_grad;
  const Batch batch{.ids_bc = random_ids(2, 7)};
  const auto state = model.new_state(2, config.context);
  model.evaluate({.ids_bc = batch.ids_bc.narrow(1, 0, 6)}, state.get());
  const auto decoder = model.decoder(2);
  REQUIRE(decoder != nullptr);
  decoder->resume(*state);
  const auto expected = model.evaluate(batch).select(1, 6);
  CHECK(relative_error(next_logits(*decoder, batch.ids_bc.select(1, 6)), expected) < 1e-5);
  StreamProbe probe(/*wants_scores=*/false);
  Pass pass{.probe = &probe};
  model.forward(batch, nullptr, pass);
  const auto norms = token_norms(probe.stacks().front());
  CHECK(norms.feed_forward_branch == std::vector<double>(2, 0.0));
  CHECK(norms.after_feed_forward == norms.after_mixer);
}

}  // namespace metaformer::test_hybrids
