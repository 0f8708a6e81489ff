#include <cmath>
#include <limits>

#include "attention/mixer.h"
#include "model/small_models.h"
#include "model/stream_probe.h"
#include "model/token_model.h"
#include "support/any_block.h"
#include "support/any_mixer.h"

namespace metaformer::test_model {

namespace {

Batch random_batch(std::int64_t rows, std::int64_t length) { return {.ids_bc = random_ids(rows, length)}; }

}  // namespace

TEST_CASE("cached generation gives the logits of the whole sequence", "[model]") {
  auto config = small_transformer(any_mixer());
  config.norm = any_norm();
  auto model = randomised(Gpt(config, vocabulary), 0.3);
  const torch::NoGradGuard no_grad;
  const auto batch = random_batch(3, 12);
  const auto whole = model.evaluate(batch);
  const auto state = model.new_state(3, config.context);
  CHECK(relative_error(read(model, batch, *state, {5, 1, 4, 2}), whole) < 1e-12);
  CHECK(state->length() == 12);
  CHECK_THROWS_AS(model.evaluate(random_batch(3, 1), state.get()), Error);
}

TEST_CASE("a sequence longer than the context is refused", "[model]") {
  Gpt model(small_transformer(MetricOptions{}), vocabulary);
  CHECK_THROWS_WITH(model.evaluate(random_batch(1, 13)), Mentions("13 tokens|model.context 12"));
}

TEST_CASE("the parameters of mixers are counted separately", "[model]") {
  auto config = small_transformer(ScaledDotProductOptions{});
  config.bias = GENERATE(true, false);
  CHECK(count_parameters(Gpt(config, vocabulary)).mixers == 2 * 4 * (8 * 8 + (config.bias ? 8 : 0)));
}

TEST_CASE("initial weights have the standard deviations of GPT-2", "[model]") {
  TransformerConfig config;
  config.bias = true;
  config.mixer = GENERATE(MixerConfig(ScaledDotProductOptions{.score_std = std::nullopt}), MixerConfig(MetricOptions{}),
                          MixerConfig(QuadraticOptions{.form = QuadraticForm::full}));
  const auto model = started(Gpt(config, 65));
  for (const auto& parameter : model.named_parameters()) {
    INFO(parameter.key());
    const auto& value = parameter.value();
    const auto& name = parameter.key();
    if (name.ends_with("packed_metric")) {
      CHECK(value.std().item<double>() == Approx(1 / (128 * 0.02 * 0.02 * std::sqrt(32.0))).epsilon(0.05));
    } else if (name.ends_with("full_form")) {
      CHECK(value.std().item<double>() == Approx(std::sqrt(32.0) / 128).epsilon(0.05));
    } else if (name.ends_with("bias")) {
      CHECK(value.abs().max().item<double>() == 0);
    } else if (value.dim() == 1) {
      CHECK(torch::equal(value, torch::ones_like(value)));
    } else {
      const bool ends_branch = name.ends_with("mixer.output.weight") || name.ends_with("down.weight");
      const double expected = ends_branch ? 0.02 / std::sqrt(8.0) : 0.02;
      CHECK(value.std().item<double>() == Approx(expected).epsilon(0.05));
      CHECK(std::abs(value.mean().item<double>()) < expected * 5 / std::sqrt(value.numel()));
    }
  }
}

TEST_CASE("the scores of different tokens start with the configured standard deviation", "[model]") {
  const double wanted = GENERATE(3.0, 1.0, 0.05);
  TransformerConfig config;
  config.layers = 2;
  config.mixer = any_mixer();
  if (!has_scores(config.mixer)) return does_not_apply("no scores");
  std::visit(
      [&](auto& options) {
        if constexpr (requires { options.score_std; }) options.score_std = wanted;
      },
      config.mixer);
  const auto model = started(Gpt(config, vocabulary));
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  const auto x_bcd = torch::randn({1, 600, config.width});
  int mixers = 0;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    auto* mixer = dynamic_cast<Mixer*>(module.get());
    if (mixer == nullptr) continue;
    StreamProbe probe;
    Pass pass{.probe = &probe};
    mixer->forward(x_bcd, x_bcd, {}, nullptr, pass);
    // Scores of the first half of the tokens against the second half.
    const auto scores_nce = probe.latest().score_bnce[0].narrow(1, 0, 300).narrow(2, 300, 300);
    const auto std = scores_nce.var({2}).mean().sqrt().item<double>();  // along the context
    CHECK(std == Approx(wanted).epsilon(0.15));
    ++mixers;
  }
  CHECK(mixers == config.layers);
}

TEST_CASE("score_std null draws queries and keys with a standard deviation of 0.02, and a number scales the same draws",
          "[model]") {
  TransformerConfig config;
  config.mixer = ScaledDotProductOptions{.score_std = std::nullopt};
  const auto published = started(Gpt(config, vocabulary));
  config.mixer = ScaledDotProductOptions{.score_std = 1};
  const auto scaled = started(Gpt(config, vocabulary));
  const auto theirs = published.named_parameters();
  const double factor = std::sqrt(1 / (128 * 0.02 * 0.02));
  for (const auto& parameter : scaled.named_parameters()) {
    const auto& other = theirs[parameter.key()];
    if (!parameter.key().ends_with("query_key_value.weight")) {
      CHECK(torch::equal(parameter.value(), other));
      continue;
    }
    CHECK(torch::allclose(parameter.value().narrow(0, 0, 256), factor * other.narrow(0, 0, 256), 1e-6, 0));
    CHECK(torch::equal(parameter.value().narrow(0, 256, 128), other.narrow(0, 256, 128)));
  }
}

TEST_CASE("a form with a fixed norm starts with larger projections but values of the usual size", "[model]") {
  TransformerConfig config;
  config.mixer = GENERATE(MixerConfig(MetricOptions{.constraint = MetricConstraint::identity}),
                          MixerConfig(MetricOptions{.fixed_norm = true}),
                          MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .fixed_norm = true}),
                          MixerConfig(QuadraticOptions{.fixed_norm = true}));
  const auto model = started(Gpt(config, vocabulary));
  for (const auto& parameter : model.named_parameters()) {
    if (!parameter.key().ends_with("projection.weight")) continue;
    const auto output = parameter.key().substr(0, parameter.key().find("projection")) + "output.weight";
    const double product = (parameter.value().std() * model.named_parameters()[output].std()).item<double>();
    CHECK(product == Approx(0.02 * 0.02 / std::sqrt(8.0)).epsilon(0.05));
  }
}

TEST_CASE("own values start with the usual size for every form", "[model]") {
  TransformerConfig config;
  config.mixer = GENERATE(MixerConfig(MetricOptions{.values = MixerValues::own, .fixed_norm = true}),
                          MixerConfig(QuadraticOptions{.values = MixerValues::own, .fixed_norm = true}));
  const auto parameters = started(Gpt(config, vocabulary)).named_parameters();
  const std::string mixer = "transformer.blocks.1.mixer.";
  const auto values = parameters[mixer + "projection.weight"].narrow(0, config.width, config.width);
  CHECK(values.std().item<double>() == Approx(0.02).epsilon(0.05));
  CHECK(parameters[mixer + "output.weight"].std().item<double>() == Approx(0.02 / std::sqrt(8.0)).epsilon(0.05));
}

TEST_CASE("a temperature starts at 1 if the form sets the size of scores, otherwise at score_std", "[model]") {
  TransformerConfig config;
  const auto [mixer, expected] = GENERATE(table<MixerConfig, double>({
      {ScaledDotProductOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true}, 0.3},
      {ScaledDotProductOptions{.score_std = std::nullopt, .qk_norm = true, .learned_temperature = true}, 1},
      {MetricOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true}, 1},
      {MetricOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true, .fixed_norm = true}, 0.3},
      {MetricOptions{
           .constraint = MetricConstraint::identity, .score_std = 0.3, .qk_norm = true, .learned_temperature = true},
       0.3},
      {QuadraticOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true}, 1},
      {QuadraticOptions{.score_std = 0.3, .qk_norm = true, .learned_temperature = true, .fixed_norm = true}, 0.3},
  }));
  config.mixer = mixer;
  const auto parameters = started(Gpt(config, vocabulary)).named_parameters();
  const std::string name = "transformer.blocks.1.mixer.";
  const auto& temperature_n = parameters[name + "temperature"];
  CHECK(torch::allclose(temperature_n, torch::full({config.heads}, expected), 1e-6, 0));
  for (const auto* norm : {"norm.weight", "query_norm.weight", "key_norm.weight"})
    CHECK_FALSE(parameters.contains(name + norm));
}

TEST_CASE("models with different mixers share all other initial weights", "[model]") {
  const auto one = started(Gpt(small_transformer(MetricOptions{}), vocabulary)),
             other = started(Gpt(small_transformer(ScaledDotProductOptions{}), vocabulary)),
             another_seed = started(Gpt(small_transformer(MetricOptions{}), vocabulary), 6);
  const auto parameters = other.named_parameters();
  int shared = 0;
  for (const auto& parameter : one.named_parameters()) {
    if (parameter.key().find(".mixer.") != std::string::npos) continue;
    CHECK(torch::equal(parameter.value(), parameters[parameter.key()]));
    ++shared;
  }
  CHECK(shared == 2 + 2 * 4 + 1);
  CHECK_FALSE(torch::equal(one.parameters()[0], another_seed.parameters()[0]));
}

TEST_CASE("dropout is used only in training, and draws the same numbers from the same place", "[model]") {
  auto config = small_transformer(any_mixer());
  config.dropout = 0.5;
  auto model = started(Gpt(config, vocabulary), 1);
  const auto batch = random_batch(2, 12);
  CHECK(torch::equal(model.evaluate(batch), model.evaluate(batch)));
  StepPasses passes(1, torch::kCPU);
  passes.set_step(0);
  auto pass = passes.pass(0);
  const auto place = pass.random.place();
  const auto dropped = model.forward(batch, nullptr, pass);
  CHECK_FALSE(torch::equal(dropped, model.evaluate(batch)));
  CHECK_FALSE(torch::equal(dropped, model.forward(batch, nullptr, pass)));
  pass.random.go_back(place);
  CHECK(torch::equal(dropped, model.forward(batch, nullptr, pass)));
}

TEST_CASE("the flat buffer holds all parameters and receives all gradients", "[model]") {
  auto model = started(Gpt(small_transformer(MetricOptions{}), vocabulary), 3),
       plain = started(Gpt(small_transformer(MetricOptions{}), vocabulary), 3);
  ParameterBuffer buffer(model);
  const auto batch = random_batch(2, 12);
  const auto loss = [&](Gpt& m) { return m.evaluate(batch).square().sum(); };
  CHECK(torch::equal(model.evaluate(batch), plain.evaluate(batch)));
  loss(model).backward();
  loss(plain).backward();
  const auto expected = plain.named_parameters();
  std::int64_t total = 0, in_views = 0;
  double squares = 0;
  for (const auto& view : buffer.views()) {
    CHECK(torch::allclose(ParameterBuffer::part(buffer.gradients(), view), expected[view.name].grad()));
    CHECK(torch::equal(ParameterBuffer::part(buffer.values(), view), expected[view.name]));
    CHECK((view.decay != Decay::none) == (expected[view.name].dim() >= 2));
    total += expected[view.name].numel();
    squares += expected[view.name].grad().square().sum().item<double>();
    in_views += view.count;
  }
  const double expected_norm = std::sqrt(squares);
  CHECK(in_views == total);
  CHECK(buffer.gradients().norm().item<double>() == Approx(expected_norm).epsilon(1e-6));
  // The model uses values that are written to the buffer.
  buffer.values().zero_();
  CHECK(model.evaluate(batch).abs().max().item<double>() == 0);
}

TEST_CASE("a NaN or infinity in a parameter is found by name", "[parameters]") {
  auto model = started(Gpt(small_transformer(MetricOptions{}), vocabulary), 1);
  ParameterBuffer parameters(model);
  CHECK(parameters.first_not_finite(parameters.values()) == nullptr);
  const auto value = GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  const torch::NoGradGuard no_grad;
  for (const auto& view : parameters.views()) {
    const auto kept = view.parameter.clone();
    view.parameter.flatten()[view.count - 1].fill_(value);
    const auto* found = parameters.first_not_finite(parameters.values());
    REQUIRE(found != nullptr);
    CHECK(found->name == view.name);
    view.parameter.copy_(kept);
  }
}

TEST_CASE("a saved and loaded state continues a sequence with the same bits, and a reset state is empty", "[state]") {
  auto model = started(Gpt(small_transformer(any_mixer()), vocabulary));
  const torch::NoGradGuard no_grad;
  const auto state = model.new_state(3, 12), loaded = model.new_state(3, 12), fresh = model.new_state(3, 12);
  model.evaluate(random_batch(3, 5), state.get());
  loaded->load(copy_of(*state), "a file");
  CHECK(loaded->length() == 5);
  const auto next = random_batch(3, 3);
  CHECK(torch::equal(model.evaluate(next, state.get()), model.evaluate(next, loaded.get())));
  CHECK(loaded->bytes() == state->bytes());  // with a window only now, because a loaded state does not contain it
  // Decoders also continue with the same bits.
  if (has_decoder(model.config().mixer)) {
    const auto one = model.decoder(3), other = model.decoder(3);
    REQUIRE(one != nullptr);
    one->resume(*state);
    other->resume(*loaded);
    const std::vector<std::int32_t> tokens = {1, 2, 3};
    for (int i = 0; i < 2; ++i) {
      const auto expected = one->step(tokens), given = other->step(tokens);
      CHECK(std::vector(expected.begin(), expected.end()) == std::vector(given.begin(), given.end()));
    }
  }
  state->reset();
  CHECK(state->length() == 0);
  CHECK(torch::equal(model.evaluate(next, state.get()), model.evaluate(next, fresh.get())));
}

TEST_CASE("a saved state of another model, batch or length is refused, and the state does not change", "[state]") {
  auto model = started(Gpt(small_transformer(MetricOptions{}), vocabulary));
  const torch::NoGradGuard no_grad;
  const auto state = model.new_state(3, 12);
  model.evaluate(random_batch(3, 5), state.get());
  auto saved = copy_of(*state);
  CHECK_THAT(complaint(*model.new_state(2, 12), saved), ContainsSubstring("of 2 sequences"));
  CHECK_THAT(complaint(*model.new_state(3, 4), saved), Mentions("5 tokens|4"));
  auto unknown = saved;
  for (const std::string name : {"blocks.7.slot_0", "blocks.0.memory"}) {
    unknown.emplace_back(name, saved.back().second);
    CHECK_THAT(complaint(*state, unknown), ContainsSubstring(name.starts_with("blocks.0") ? "'memory'" : name));
    unknown.pop_back();
  }
  saved.erase(saved.begin());
  CHECK_THAT(complaint(*state, saved), ContainsSubstring("it has no 'length'"));
  // A state of another width is refused only when the sequence goes on.
  Gpt wide(small_transformer(MetricOptions{}, 16), vocabulary);
  const auto wide_state = wide.new_state(3, 12);
  wide_state->load(copy_of(*state), "a file");
  CHECK_THROWS_WITH(wide.evaluate(random_batch(3, 1), wide_state.get()), ContainsSubstring("other sizes"));
}

// Without blocks the last vector is the embedding of the last token.
TEST_CASE("a compressor predicts tokens from the last vector and a sinusoid of their place", "[compression]") {
  auto config = small_transformer(ScaledDotProductOptions{}, 8, 6);
  config.layers = 0;
  config.positions = NoPositionsConfig{};
  config.norm = RmsNormConfig{};
  config.embedding.tie = true;
  Compressor model(config, vocabulary);
  randomise(model);
  const auto weight = model.named_parameters();
  const auto ids_bc = random_ids(3, 6);
  const auto table_vd = weight["transformer.token_embedding.weight"];
  auto x_bcd = table_vd.index_select(0, ids_bc.select(1, 5)).unsqueeze(1).repeat({1, 6, 1});
  for (std::int64_t c = 0; c < 6; ++c)
    for (std::int64_t d = 0; d < 8; ++d) {
      const double angle = static_cast<double>(c) / std::pow(10000, static_cast<double>(d / 2 * 2) / 8);
      x_bcd.select(1, c).select(1, d) += d % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  for (const std::string i : {"0", "1"}) {
    const auto norm = x_bcd / (x_bcd.square().mean(-1, true) + 1e-5).sqrt() * weight["decoder_norm_" + i + ".weight"];
    const auto y_bcd = norm.matmul(weight["decoder_" + i + ".weight"].t()) + weight["decoder_" + i + ".bias"];
    x_bcd = 0.5 * y_bcd * (1 + torch::erf(y_bcd / std::sqrt(2)));
  }
  CHECK(close(model.evaluate({.ids_bc = ids_bc}), x_bcd.matmul(table_vd.t())));
  CHECK_THROWS_AS(model.new_state(1, 6), Error);
}

}  // namespace metaformer::test_model
