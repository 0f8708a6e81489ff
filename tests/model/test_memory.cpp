// model.memory: the earlier segments that a segment sees, in training and when a text is read with a state.

#include "model/small_models.h"
#include "model/token_model.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer::test_memory {

namespace {

constexpr std::int64_t batch = 2, segment = 5;

TransformerConfig config_of(const PositionsConfig& positions, const MixerConfig& mixer, std::int64_t memory) {
  auto config = small_transformer(mixer, 8, segment);
  config.memory = memory;
  config.positions = positions;
  return config;
}

Gpt model_of(const TransformerConfig& config) { return randomised(Gpt(config, vocabulary)); }

// Whether positions depend only on the distance of tokens, not on the start of a segment.
bool are_relative(const PositionsConfig& positions) {
  return !is<LearnedPositionsConfig>(positions) && !is<SinusoidalPositionsConfig>(positions);
}

std::unique_ptr<ModelState> state_of(const Gpt& model, bool training) {
  return training ? model.new_memory() : model.new_state(batch, segment);
}

// Reads the text segment by segment.
torch::Tensor read(Gpt& model, const torch::Tensor& ids_bc, ModelState& state, const torch::Tensor& segments_bc = {}) {
  const auto count = static_cast<std::size_t>(ids_bc.size(1) / segment);
  return metaformer::read(model, {.ids_bc = ids_bc, .segments_bc = segments_bc}, state, std::vector(count, segment));
}

Gpt with_context(const Gpt& model, std::int64_t context) {
  auto config = model.config();
  config.context = context;
  config.memory = 0;
  config.same_length = false;
  Gpt longer(config, vocabulary);
  longer.to(torch::kDouble);
  copy_by_name(named_state(model), named_state(longer), "the same weights");
  return longer;
}

MixerConfig any_mixer_with_memory() {
  static const auto all = every_mixer_that(takes_longer_context);
  return one_of(all);
}

void check_one_long_segment(const TransformerConfig& config) {
  const torch::NoGradGuard no_grad;
  auto model = model_of(config);
  const auto ids_bc = random_ids(batch, 4 * segment);
  const auto state = state_of(model, /*training=*/GENERATE(false, true));
  CHECK(close(read(model, ids_bc, *state), with_context(model, 4 * segment).evaluate({.ids_bc = ids_bc})));
}

}  // namespace

TEST_CASE("segments with enough memory equal one long segment, with every mixer", "[memory]") {
  check_one_long_segment(config_of(NoPositionsConfig{}, any_mixer_with_memory(), 3 * segment));
}

TEST_CASE("segments with enough memory equal one long segment, with all relative positions", "[memory]") {
  const auto positions = any_positions();
  if (!are_relative(positions)) return does_not_apply("these positions are not relative");
  const auto mixer =
      GENERATE(MixerConfig(ScaledDotProductOptions{}), MixerConfig(QuadraticOptions{.form = QuadraticForm::full}),
               MixerConfig(ScaledDotProductOptions{.window = 5, .key_value_heads = 1, .sinks = true}),
               MixerConfig(ScaledDotProductOptions{.weights = AttentionWeights::sigmoid}),
               MixerConfig(DifferentialOptions{}), MixerConfig(MetricOptions{.values = MixerValues::own}),
               MixerConfig(MetricOptions{.constraint = MetricConstraint::psd, .score = MetricScore::distance}));
  auto config = config_of(positions, mixer, 3 * segment);
  config.norm = LayerNormConfig{.position = GENERATE(NormPosition::pre, NormPosition::post, NormPosition::both)};
  check_one_long_segment(config);
}

TEST_CASE("absolute positions start again in every segment", "[memory]") {
  const torch::NoGradGuard no_grad;
  const auto positions =
      GENERATE(PositionsConfig(LearnedPositionsConfig{}), PositionsConfig(SinusoidalPositionsConfig{}));
  // Without mixing a vector depends only on its token and position.
  auto model = model_of(config_of(positions, IdentityOptions{}, segment));
  const auto ids_bc = random_ids(batch, segment);
  const auto state = state_of(model, GENERATE(false, true));
  const auto twice_bcv = read(model, torch::cat({ids_bc, ids_bc}, 1), *state);
  CHECK(torch::equal(twice_bcv.narrow(1, 0, segment), twice_bcv.narrow(1, segment, segment)));
}

TEST_CASE("an empty memory changes no bit of the logits, and a reset empties the memory", "[memory]") {
  const torch::NoGradGuard no_grad;
  auto model = started(Gpt(config_of(any_positions(), MetricOptions{}, 7), vocabulary), 3);
  const auto ids_bc = random_ids(batch, segment);
  const auto alone_bcv = model.evaluate({.ids_bc = ids_bc});
  const auto state = state_of(model, GENERATE(false, true));
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc}, state.get()), alone_bcv));
  CHECK_FALSE(torch::equal(model.evaluate({.ids_bc = ids_bc}, state.get()), alone_bcv));
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc, .begins = true}, state.get()), alone_bcv));
  state->reset();
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc}, state.get()), alone_bcv));
}

TEST_CASE("a token sees as far back as the memory, same_length and the window of the mixer allow", "[memory]") {
  const torch::NoGradGuard no_grad;
  const bool training = GENERATE(false, true), same_length = GENERATE(false, true);
  const std::int64_t memory = GENERATE(3, 5, 8), window = GENERATE(0, 4);
  auto config = config_of(AlibiPositionsConfig{}, ScaledDotProductOptions{.window = window}, memory);
  config.layers = 1;  // with more layers a token sees further back through other tokens
  config.same_length = same_length;
  auto model = model_of(config);
  const auto ids_bc = random_ids(batch, 3 * segment);
  const auto logits_bcv = read(model, ids_bc, *state_of(model, training));
  for (std::int64_t changed = 0; changed < 3 * segment; ++changed) {
    auto other_bc = ids_bc.clone();
    other_bc.select(1, changed).add_(1).remainder_(vocabulary);
    const auto other_bcv = read(model, other_bc, *state_of(model, training));
    for (std::int64_t c = 0; c < 3 * segment; ++c) {
      auto reach = same_length ? c - memory + 1 : c / segment * segment - memory;
      if (window > 0) reach = std::max(reach, c - window + 1);
      const bool seen = changed <= c && changed >= reach;
      INFO("token " << c << " and a change of token " << changed);
      CHECK(torch::equal(logits_bcv.select(1, c), other_bcv.select(1, c)) == !seen);
    }
  }
}

TEST_CASE("a token sees nothing of other documents in the memory", "[memory]") {
  const torch::NoGradGuard no_grad;
  const auto mixer = any_mixer_with_memory();
  auto model = model_of(config_of(RotaryPositionsConfig{}, mixer, 2 * segment));
  if (!has_scores(mixer)) model = model_of(config_of(NoPositionsConfig{}, mixer, 2 * segment));
  const auto ids_bc = random_ids(batch, 4 * segment);
  // Documents of 7, 9 and 4 tokens in the first row, of 12 and 8 in the second.
  const auto lengths = std::vector<std::vector<std::int64_t>>{{7, 9, 4}, {12, 8}};
  const auto logits_bcv = read(model, ids_bc, *state_of(model, GENERATE(false, true)), documents(lengths));
  auto alone = with_context(model, 12);
  for (std::int64_t row = 0; row < batch; ++row) {
    std::int64_t first = 0;
    for (const auto length : lengths[static_cast<std::size_t>(row)]) {
      const auto document_bc = ids_bc.narrow(0, row, 1).narrow(1, first, length);
      CHECK(close(logits_bcv[row].narrow(0, first, length), alone.evaluate({.ids_bc = document_bc})[0]));
      first += length;
    }
  }
}

TEST_CASE("no gradient flows into the memory", "[memory]") {
  auto config = config_of(TransformerXlPositionsConfig{}, MetricOptions{}, segment);
  auto model = model_of(config);
  const auto ids_bc = random_ids(batch, 2 * segment);
  const auto memory = model.new_memory();
  model.evaluate({.ids_bc = ids_bc.narrow(1, 0, segment)}, memory.get());
  const auto saved = memory->tensors();
  for (const auto& [name, tensor] : saved) CHECK_FALSE(tensor.requires_grad());
  // Finite differences with a fixed memory.
  check_gradients(model, [&] {
    const auto again = model.new_memory();
    again->load(saved, "the memory");
    return model.evaluate({.ids_bc = ids_bc.narrow(1, segment, segment)}, again.get()).square().mean();
  });
}

TEST_CASE("a saved and loaded memory gives the same bits", "[memory]") {
  const torch::NoGradGuard no_grad;
  auto model = started(Gpt(config_of(TransformerXlPositionsConfig{}, MetricOptions{}, 8), vocabulary), 3);
  const bool training = GENERATE(false, true);
  const auto state = state_of(model, training), loaded = state_of(model, training);
  const auto ids_bc = random_ids(batch, segment);
  for (int i = 0; i < 3; ++i) model.evaluate({.ids_bc = ids_bc}, state.get());
  loaded->load(copy_of(*state), "a file");
  CHECK(loaded->length() == state->length());
  const auto next_bc = random_ids(batch, segment);
  CHECK(torch::equal(model.evaluate({.ids_bc = next_bc}, loaded.get()),
                     model.evaluate({.ids_bc = next_bc}, state.get())));
}

TEST_CASE("the memory of another model is refused", "[memory]") {
  Gpt model(config_of(NoPositionsConfig{}, MetricOptions{}, 4), vocabulary);
  const auto memory = model.new_memory();
  const auto of_block = torch::zeros({batch, 4, 8}), longer = torch::zeros({batch, 5, 8}),
             narrower = torch::zeros({batch, 4, 7}), shorter = torch::zeros({batch, 3, 8});
  for (const auto& [saved, text] : std::vector<std::pair<NamedTensors, std::string>>{
           {{{"blocks.0", of_block}}, "it has no 'blocks.1'"},
           {{{"blocks.0", of_block}, {"blocks.1", of_block}, {"blocks.7", of_block}}, "model has no 'blocks.7'"},
           {{{"blocks.0", longer}, {"blocks.1", of_block}}, "'blocks.0'|5 tokens|model.memory|4"},
           {{{"blocks.0", narrower}, {"blocks.1", of_block}}, "'blocks.0'|, 4, 7]|any, 8]"},
           {{{"blocks.0", of_block}, {"blocks.1", shorter}}, "'blocks.1'|, 3, 8]|, 4, 8]"},
           {{{"blocks.0", of_block}, {"blocks.1", of_block}, {"segments", torch::zeros({batch})}}, "'segments'|, 4]"}})
    CHECK_THAT(complaint(*memory, saved), Mentions(text));
  CHECK(memory->length() == 0);
  Gpt without(config_of(NoPositionsConfig{}, MetricOptions{}, 0), vocabulary);
  CHECK(without.new_memory() == nullptr);
}

}  // namespace metaformer::test_memory
