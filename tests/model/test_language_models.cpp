// Language models other than transformers: LSTM, GRU and feed-forward. Their formulas are in
// tests/python/reference_model.py.

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/rnn.h>

#include <cmath>

#include "model/feed_forward_model.h"
#include "model/recurrent_model.h"
#include "model/small_models.h"
#include "ops/autocast.h"

namespace metaformer::test_language_models {

namespace {

constexpr std::int64_t batch = 2, segment = 5;
const std::vector<std::int64_t> four_segments(4, segment);

struct Options {
  double dropout = 0, embedding_dropout = 0;
  bool carry_state = false;
};

RecurrentConfig recurrent_config(RecurrentCell cell, const Options& options = {}) {
  RecurrentConfig config{.cell = cell};
  config.layers = 2;
  config.width = 6;
  config.context = segment;
  config.dropout = options.dropout;
  config.embedding.dropout = options.embedding_dropout;
  config.carry_state = options.carry_state;
  return config;
}

RecurrentConfig any_config() { return recurrent_config(GENERATE(RecurrentCell::lstm, RecurrentCell::gru)); }

// A model with random weights.
RecurrentModel model_of(const RecurrentConfig& config, torch::ScalarType type = torch::kDouble) {
  auto model = randomised(RecurrentModel(config, vocabulary));
  model.to(type);
  return model;
}

struct Kind {
  std::shared_ptr<SequenceModel> model;
  std::int64_t dropouts;  // number of dropouts, without that of embeddings
};

Kind recurrent(RecurrentCell cell, const Options& options) {
  return {std::make_shared<RecurrentModel>(recurrent_config(cell, options), vocabulary), 3};
}

Kind feed_forward(std::int64_t window, const Options& options) {
  FeedForwardModelConfig config;
  config.window = window;
  config.width = 4;
  config.hidden = 6;
  config.context = 9;
  config.dropout = options.dropout;
  config.embedding.dropout = options.embedding_dropout;
  return {std::make_shared<FeedForwardModel>(config, vocabulary), 2};
}

// A model with initial weights.
Kind any_kind(const Options& options = {}) {
  const auto number = GENERATE(-1, 0, 1, 2, 4);
  auto kind = number == -1  ? recurrent(RecurrentCell::lstm, options)
              : number == 0 ? recurrent(RecurrentCell::gru, options)
                            : feed_forward(number, options);
  initialise(*kind.model, 5);
  return kind;
}

// A model with random weights, in double.
Kind any_random_kind(const Options& options = {}) {
  auto kind = any_kind(options);
  randomise(*kind.model);
  return kind;
}

Batch random_batch(std::int64_t length, bool with_documents = false) {
  Batch made{.ids_bc = random_ids(batch, length)};
  if (with_documents) made.segments_bc = torch::randint(2, {batch, length}, torch::kLong).cumsum(1);
  return made;
}

}  // namespace

TEST_CASE("segments with a carried state equal one long segment", "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto config = any_config();
  config.carry_state = true;
  auto model = model_of(config);
  Batch text{.ids_bc = random_ids(batch, 4 * segment)};
  const auto lengths = GENERATE(values<std::vector<std::vector<std::int64_t>>>(
      {{}, {{7, 9, 4}, {12, 8}}, {{5, 5, 10}, {20}}, {{1, 1, 18}, {2, 17, 1}}}));
  if (!lengths.empty()) text.segments_bc = documents(lengths);
  const auto state = GENERATE(true, false) ? model.new_memory() : model.new_state(batch, segment);
  CHECK(close(read(model, text, *state, four_segments), model.evaluate(text)));
  CHECK(state->length() == 4 * segment);
}

TEST_CASE("a decoder of a recurrent model gives the logits of the whole sequence, and updates the state",
          "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto config = any_config();
  config.width = GENERATE(6, 16, 37);
  config.layers = GENERATE(1, 3);
  config.embedding.tie = GENERATE(true, false);
  config.embedding.scale = EmbeddingScale::sqrt_width;
  auto model = model_of(config, torch::kFloat);
  auto wide = model_of(config, torch::kFloat);  // the same weights
  wide.to(torch::kDouble);
  const auto ids_bc = random_ids(batch, 20);
  const auto expected_bcv = wide.evaluate({.ids_bc = ids_bc});
  const auto state = model.new_state(batch, segment);
  model.evaluate({.ids_bc = ids_bc.narrow(1, 0, 3)}, state.get());
  const auto decoder = model.decoder(batch);
  REQUIRE(decoder != nullptr);
  CHECK(wide.decoder(batch) == nullptr);
  decoder->resume(*state);
  for (std::int64_t place = 3; place < 15; ++place)
    CHECK(relative_error(next_logits(*decoder, ids_bc.select(1, place)), expected_bcv.select(1, place)) < 3e-6);
  CHECK(state->length() == 15);
  const auto rest_bcv = model.evaluate({.ids_bc = ids_bc.narrow(1, 15, 5)}, state.get());
  CHECK(torch::allclose(rest_bcv.to(torch::kDouble), expected_bcv.narrow(1, 15, 5), 1e-5, 1e-5));
}

TEST_CASE("a decoder of a recurrent model in bfloat16 gives the bits of one in float32 whose matrices are rounded",
          "[recurrent]") {
  const torch::NoGradGuard no_grad;
  auto config = any_config();
  config.width = GENERATE(6, 37);
  config.embedding.tie = false;  // an embedding is not rounded
  auto model = model_of(config, torch::kFloat), rounded = model_of(config, torch::kFloat);
  for (auto& parameter : rounded.named_parameters())
    if (parameter->dim() == 2 && parameter.key() != "token_embedding.weight")
      parameter->copy_(parameter->to(torch::kBFloat16));
  const auto ids_bc = random_ids(batch, 9);
  const auto decoded = [&](const RecurrentModel& of, WeightPrecision precision) {
    const auto state = model.new_state(batch, segment);
    model.evaluate({.ids_bc = ids_bc.narrow(1, 0, 3)}, state.get());
    const auto decoder = of.decoder(batch, precision);
    decoder->resume(*state);
    std::vector<torch::Tensor> logits;
    for (std::int64_t place = 3; place < 9; ++place) logits.push_back(next_logits(*decoder, ids_bc.select(1, place)));
    return torch::stack(logits);
  };
  const auto expected = decoded(rounded, WeightPrecision::fp32);
  CHECK(torch::equal(decoded(model, WeightPrecision::bf16), expected));
  CHECK(torch::equal(decoded(rounded, WeightPrecision::bf16), expected));
  CHECK_FALSE(torch::equal(decoded(model, WeightPrecision::fp32), expected));
}

TEST_CASE("gradients flow through a segment, but not into the state before it", "[recurrent]") {
  auto config = any_config();
  config.carry_state = true;
  auto model = model_of(config);
  const auto ids_bc = random_ids(batch, 2 * segment);
  const auto segments_bc = documents({{7, 3}, {10}});
  const auto part = [&](std::int64_t first) {
    return Batch{.ids_bc = ids_bc.narrow(1, first, segment), .segments_bc = segments_bc.narrow(1, first, segment)};
  };
  const auto memory = model.new_memory();
  model.evaluate(part(0), memory.get());
  const auto saved = memory->tensors();
  for (const auto& [name, tensor] : saved) CHECK_FALSE(tensor.requires_grad());
  // Finite differences with a fixed earlier state.
  check_gradients(model, [&] {
    const auto again = model.new_memory();
    again->load(saved, "the state");
    return model.evaluate(part(segment), again.get()).square().mean();
  });
}

TEST_CASE("the parameters of a recurrent model have PyTorch's names and shapes", "[recurrent]") {
  auto config = any_config();
  config.layers = GENERATE(1, 3);
  config.embedding.tie = GENERATE(true, false);
  const RecurrentModel model(config, vocabulary);
  const auto own = model.named_parameters();
  const auto check_names = [&](const auto& layers, const std::string& prefix) {
    std::size_t found = 0;
    for (const auto& parameter : layers->named_parameters()) {
      const auto* same = own.find(prefix + parameter.key());
      REQUIRE(same != nullptr);
      CHECK(same->sizes() == parameter.value().sizes());
      ++found;
    }
    CHECK(found + (config.embedding.tie ? 1 : 2) == own.size());
  };
  if (config.cell == RecurrentCell::lstm)
    check_names(torch::nn::LSTM(torch::nn::LSTMOptions(6, 6).num_layers(config.layers)), "lstm.");
  else
    check_names(torch::nn::GRU(torch::nn::GRUOptions(6, 6).num_layers(config.layers)), "gru.");
}

TEST_CASE("a recurrent model starts with PyTorch's distribution, and each parameter is drawn by its name",
          "[recurrent]") {
  auto config = any_config();
  config.width = 64;
  const auto two = started(RecurrentModel(config, vocabulary), 3);
  config.layers = 1;
  const auto one = started(RecurrentModel(config, vocabulary), 3);
  const auto of_two = two.named_parameters();
  for (const auto& parameter : one.named_parameters()) CHECK(torch::equal(parameter.value(), of_two[parameter.key()]));
  for (const auto& [name, value, spec] : specified_parameters(two)) {
    INFO(name);
    const bool is_matrix = name.find(".weight_") != std::string::npos,
               is_bias = name.find(".bias_") != std::string::npos;
    CHECK((spec.decay == Decay::none) == is_bias);
    CHECK(spec.hidden_matrices == (is_matrix ? config.gates() : 0));
    if (!is_matrix && !is_bias) continue;
    CHECK(value.abs().max().item<double>() <= 0.125);
    CHECK(value.abs().max().item<double>() > 0.12);
    CHECK(value.std().item<double>() == Approx(0.125 / std::sqrt(3.0)).epsilon(0.1));
    CHECK(std::abs(value.mean().item<double>()) < 0.02);
  }
  const std::string first = (config.cell == RecurrentCell::lstm ? "lstm" : "gru") + std::string(".weight_ih_l");
  CHECK_FALSE(torch::equal(of_two[first + "0"], of_two[first + "1"]));
}

TEST_CASE("a recurrent model computes with the values of the parameter buffer", "[recurrent]") {
  const auto config = any_config();
  auto model = started(RecurrentModel(config, vocabulary), 3);
  ParameterBuffer buffer(model);
  const auto ids_bc = random_ids(batch, segment);
  const auto before_bcv = model.evaluate({.ids_bc = ids_bc}).detach();
  for (const auto& view : buffer.views()) {
    INFO(view.name);
    const torch::NoGradGuard no_grad;
    auto part = ParameterBuffer::part(buffer.values(), view);
    const auto kept = part.clone();
    part.add_(0.5);
    CHECK_FALSE(torch::allclose(model.evaluate({.ids_bc = ids_bc}), before_bcv, 1e-4, 1e-5));
    part.copy_(kept);
  }
  CHECK(torch::equal(model.evaluate({.ids_bc = ids_bc}), before_bcv));
  model.evaluate({.ids_bc = ids_bc}).square().sum().backward();
  for (const auto& view : buffer.views()) {
    INFO(view.name);
    CHECK(ParameterBuffer::part(buffer.gradients(), view).abs().sum().item<double>() > 0);
  }
}

TEST_CASE("under autocast the recurrence is in float32, and the output layer in the narrow type", "[recurrent]") {
  const auto precision = GENERATE(Precision::bf16, Precision::fp16);
  auto model = model_of(any_config(), torch::kFloat);
  const Batch given{.ids_bc = random_ids(batch, segment)};
  Pass plain, cast;
  const auto expected_bcd = model.hidden(given, nullptr, plain);
  const AutocastScope autocast(precision, torch::kCPU);
  const auto x_bcd = model.hidden(given, nullptr, cast);
  CHECK(torch::equal(x_bcd, expected_bcd));
  const auto logits_bcv = model.logits_of(x_bcd);
  CHECK(logits_bcv.scalar_type() == (precision == Precision::bf16 ? torch::kBFloat16 : torch::kHalf));
  logits_bcv.to(torch::kFloat).square().mean().backward();
  for (const auto& parameter : model.parameters()) CHECK(parameter.grad().isfinite().all().item<bool>());
}

TEST_CASE("the initial values and decay of a feed-forward model's parameters depend on their kind",
          "[feed_forward_model]") {
  FeedForwardModelConfig config;
  config.window = GENERATE(1, 2, 4);
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

TEST_CASE("generation gives the logits of the whole sequence of any length", "[language_models]") {
  const torch::NoGradGuard no_grad;
  const auto model = any_random_kind().model;
  CHECK(model->has_endless_state());
  CHECK_FALSE(model->remembers());
  CHECK(model->new_memory() == nullptr);
  const auto text = random_batch(17, GENERATE(false, true));
  const auto whole_bcv = model->evaluate(text);
  const auto state = model->new_state(batch, 1);
  CHECK(close(read(*model, text, *state, {3, 1, 1, 8, 1, 3}), whole_bcv));
  CHECK(state->length() == 17);
  auto again = text;
  again.begins = true;
  CHECK(close(model->evaluate(again, state.get()), whole_bcv));
}

TEST_CASE("each document is read as if it were alone, whatever padding follows", "[language_models]") {
  const torch::NoGradGuard no_grad;
  const auto model = any_random_kind().model;
  const auto lengths =
      GENERATE(values<std::vector<std::vector<std::int64_t>>>({{{3, 4, 2}, {1, 8}}, {{1, 1, 7}, {2, 6, 1}}}));
  const auto ids_bc = random_ids(batch, 9);
  const bool is_padded = GENERATE(false, true);  // in place of a third document
  auto segments_bc = documents(lengths);
  if (is_padded) segments_bc.masked_fill_(segments_bc == 2, -1);
  const auto whole_bcv = model->evaluate({.ids_bc = ids_bc, .segments_bc = segments_bc});
  for (std::int64_t row = 0; row < batch; ++row) {
    std::int64_t first = 0;
    for (const auto length : lengths[static_cast<std::size_t>(row)]) {
      if (segments_bc[row][first].item<std::int64_t>() < 0) continue;
      const auto alone_cv = model->evaluate({.ids_bc = ids_bc.narrow(0, row, 1).narrow(1, first, length)})[0];
      CHECK(close(whole_bcv[row].narrow(0, first, length), alone_cv));
      first += length;
    }
  }
}

TEST_CASE("gradients of language models equal finite differences", "[language_models]") {
  const auto model = any_random_kind().model;
  const auto given = random_batch(7, GENERATE(false, true));
  check_gradients(*model, [&] { return model->evaluate(given).square().mean(); });
}

TEST_CASE("dropout of a language model uses the random numbers of the pass", "[language_models]") {
  const double of_embeddings = GENERATE(0.0, 0.25);
  const auto [model, dropouts] = any_kind({.dropout = 0.5, .embedding_dropout = of_embeddings});
  const auto generator = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  const Batch given{.ids_bc = torch::arange(48).remainder(vocabulary).view({4, 12})};
  const auto before = generator();
  StepPasses passes(1, torch::kCPU);
  const auto hidden = [&](std::int64_t of_step) {
    passes.set_step(of_step);
    auto pass = passes.pass(0);
    auto x_bcd = model->hidden(given, nullptr, pass);
    CHECK(pass.random.place() == static_cast<std::uint64_t>(dropouts + (of_embeddings > 0 ? 1 : 0)));
    return x_bcd;
  };
  const auto x_bcd = hidden(1);
  x_bcd.sum().backward();
  CHECK(torch::equal(generator(), before));
  CHECK(torch::equal(hidden(1), x_bcd));
  CHECK_FALSE(torch::equal(hidden(2), x_bcd));
  CHECK((x_bcd == 0).to(torch::kDouble).mean().item<double>() == Approx(0.5).margin(0.15));
  Pass evaluates;
  CHECK((model->hidden(given, nullptr, evaluates) != 0).all().item<bool>());
}

TEST_CASE("a saved and loaded state of any language model gives the same bits", "[state]") {
  const torch::NoGradGuard no_grad;
  const auto model = any_kind({.carry_state = true}).model;
  const bool with_documents = GENERATE(false, true);
  const auto state = model->new_state(batch, 12), loaded = model->new_state(batch, 12);
  for (int i = 0; i < 3; ++i) model->evaluate(random_batch(5, with_documents), state.get());
  loaded->load(copy_of(*state), "a file");
  CHECK(loaded->length() == 15);
  CHECK(loaded->bytes() == state->bytes());
  const auto next = random_batch(4, with_documents);
  CHECK(torch::equal(model->evaluate(next, loaded.get()), model->evaluate(next, state.get())));
  state->reset();
  CHECK(state->length() == 0);
  CHECK(torch::equal(model->evaluate(next, state.get()), model->evaluate(next)));
}

TEST_CASE("an incomplete recurrent state or one of another model is refused", "[state]") {
  const torch::NoGradGuard no_grad;
  const auto lstm = recurrent(RecurrentCell::lstm, {.carry_state = true}).model,
             gru = recurrent(RecurrentCell::gru, {.carry_state = true}).model;
  initialise(*lstm, 5);
  const auto state = lstm->new_memory();
  lstm->evaluate(random_batch(5), state.get());
  auto saved = copy_of(*state);
  const auto with = [&](std::size_t number, const torch::Tensor& tensor) {
    auto wrong = saved;
    wrong[number].second = tensor;
    return complaint(*state, wrong);
  };
  CHECK_THAT(complaint(*gru->new_memory(), saved), ContainsSubstring("model has no 'cell'"));
  CHECK_THAT(with(1, torch::zeros({2, batch, 7})), ContainsSubstring("'hidden' has shape [2, 2, 7]"));
  for (const auto& shape : {std::vector<std::int64_t>{}, {2}, {2, batch + 1, 6}, {1, batch, 6}})
    CHECK_THAT(with(2, torch::zeros(shape)), ContainsSubstring("'cell' has shape [") && ContainsSubstring("[2, 2, 6]"));
  CHECK_THAT(with(0, torch::tensor(std::int64_t{9'000'000'000'000'000'000})), ContainsSubstring("'length' is 9e+18"));
  CHECK_THAT(with(0, torch::tensor(std::int64_t{-1})), ContainsSubstring("'length' is -1, "));
  CHECK_THAT(with(0, torch::tensor(1.5)), ContainsSubstring("'length' is 1.5, "));
  CHECK_THAT(with(0, torch::ones({2}, torch::kLong)), ContainsSubstring("'length' has shape [2], "));
  auto partial = saved;
  partial.pop_back();
  CHECK_THAT(complaint(*state, partial), ContainsSubstring("it has no 'cell'"));
  saved.erase(saved.begin());
  CHECK_THAT(complaint(*state, saved), ContainsSubstring("it has no 'length'"));
  state->load({}, "a file");  // the state of a run before its first step
  CHECK(state->length() == 0);
  CHECK_THROWS_AS(lstm->evaluate(random_batch(2), feed_forward(3, {}).model->new_state(batch, 1).get()), Error);
}

TEST_CASE("a window of another length or batch is refused", "[state]") {
  const torch::NoGradGuard no_grad;
  const auto model = feed_forward(5, {}).model;
  initialise(*model, 5);
  const auto state = model->new_state(batch, 12);
  model->evaluate(random_batch(7), state.get());
  auto saved = copy_of(*state);
  CHECK_THAT(complaint(*feed_forward(4, {}).model->new_state(batch, 12), saved), Mentions("'ids'|[2, 4]|[2, 3]"));
  CHECK_THAT(complaint(*model->new_state(3, 12), saved), Mentions("'ids'|[2, 4]|[3, 4]"));
  auto unknown = saved;
  unknown.emplace_back("cell", torch::zeros(1));
  CHECK_THAT(complaint(*state, unknown), ContainsSubstring("model has no 'cell'"));
  saved.erase(saved.begin());
  CHECK_THAT(complaint(*state, saved), ContainsSubstring("it has no 'length'"));
  const auto other = recurrent(RecurrentCell::gru, {.carry_state = true}).model;
  CHECK_THROWS_AS(model->evaluate(random_batch(2), other->new_memory().get()), Error);
}

}  // namespace metaformer::test_language_models
