// What every language model that is no transformer has in common: recurrent ones, and those that see a window.

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "model/feed_forward_model.h"
#include "model/parameters.h"
#include "model/recurrent_model.h"
#include "model/small_models.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 13, batch = 2;

struct Kind {
  std::shared_ptr<SequenceModel> model;
  std::int64_t seen;      // tokens that a token sees, itself included
  std::int64_t dropouts;  // without that of embeddings
};

struct Options {
  double dropout = 0, embedding_dropout = 0;
  bool carry_state = false;
};

Kind recurrent(RecurrentCell cell, const Options& options) {
  RecurrentConfig config{.cell = cell};
  config.layers = 2;
  config.width = 6;
  config.context = 5;
  config.dropout = options.dropout;
  config.embedding.dropout = options.embedding_dropout;
  config.carry_state = options.carry_state;
  return {std::make_shared<RecurrentModel>(config, vocabulary), 1 << 20, 3};
}

Kind feed_forward(std::int64_t window, const Options& options) {
  FeedForwardModelConfig config;
  config.window = window;
  config.width = 4;
  config.hidden = 6;
  config.context = 9;
  config.dropout = options.dropout;
  config.embedding.dropout = options.embedding_dropout;
  return {std::make_shared<FeedForwardModel>(config, vocabulary), window, 2};
}

// With initial weights.
Kind any_kind(const Options& options = {}) {
  const auto number = GENERATE(-1, 0, 1, 2, 4);
  auto kind = number == -1  ? recurrent(RecurrentCell::lstm, options)
              : number == 0 ? recurrent(RecurrentCell::gru, options)
                            : feed_forward(number, options);
  initialise(*kind.model, 5);
  return kind;
}

// With random weights, in double.
Kind any_random_kind(const Options& options = {}) {
  auto kind = any_kind(options);
  kind.model->to(torch::kDouble);
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : kind.model->parameters()) parameter.normal_(0, 0.5);
  return kind;
}

Batch random_batch(std::int64_t length, bool with_documents = false) {
  torch::manual_seed(length);
  Batch made{.ids_bc = torch::randint(vocabulary, {batch, length}, torch::kLong)};
  if (with_documents) made.segments_bc = torch::randint(2, {batch, length}, torch::kLong).cumsum(1);
  return made;
}

}  // namespace

TEST_CASE("a language model generates what the whole sequence gives, however long it is", "[language_models]") {
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

TEST_CASE("a token changes the logits of those that see it only", "[language_models]") {
  const torch::NoGradGuard no_grad;
  const auto [model, seen, dropouts] = any_random_kind();
  const auto ids_bc = random_batch(9).ids_bc;
  const auto logits_bcv = model->evaluate({.ids_bc = ids_bc});
  for (std::int64_t changed = 0; changed < 9; ++changed) {
    auto other_bc = ids_bc.clone();
    other_bc.select(1, changed).add_(1).remainder_(vocabulary);
    const auto other_bcv = model->evaluate({.ids_bc = other_bc});
    for (std::int64_t c = 0; c < 9; ++c)
      CHECK(torch::equal(logits_bcv.select(1, c), other_bcv.select(1, c)) == (c < changed || c >= changed + seen));
  }
}

TEST_CASE("rows of a language model do not know of each other", "[language_models]") {
  const torch::NoGradGuard no_grad;
  const auto model = any_random_kind().model;
  const auto ids_bc = random_batch(7).ids_bc;
  const auto together_bcv = model->evaluate({.ids_bc = ids_bc});
  for (std::int64_t i = 0; i < batch; ++i)
    CHECK(close(model->evaluate({.ids_bc = ids_bc.narrow(0, i, 1)})[0], together_bcv[i]));
}

TEST_CASE("the gradients of a language model are finite differences", "[language_models]") {
  const auto model = any_random_kind().model;
  const auto given = random_batch(7, GENERATE(false, true));
  check_gradients(*model, [&] { return model->evaluate(given).square().mean(); });
}

TEST_CASE("dropout of a language model takes the pass's numbers", "[language_models]") {
  const double of_embeddings = GENERATE(0.0, 0.25);
  const auto [model, seen, dropouts] = any_kind({.dropout = 0.5, .embedding_dropout = of_embeddings});
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

TEST_CASE("a state of any language model that was saved and loaded goes on with the same bits", "[state]") {
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

TEST_CASE("a recurrent state of another model or a part of one is refused", "[state]") {
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
  CHECK_THAT(complaint(*gru->new_memory(), saved), ContainsSubstring("this model has no 'cell'"));
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
  state->load({}, "a file");  // of a run that had not begun
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
  CHECK_THAT(complaint(*feed_forward(4, {}).model->new_state(batch, 12), saved),
             ContainsSubstring("'ids' has shape [2, 4], and this model expects [2, 3]"));
  CHECK_THAT(complaint(*model->new_state(3, 12), saved),
             ContainsSubstring("'ids' has shape [2, 4], and this model expects [3, 4]"));
  auto unknown = saved;
  unknown.emplace_back("cell", torch::zeros(1));
  CHECK_THAT(complaint(*state, unknown), ContainsSubstring("this model has no 'cell'"));
  saved.erase(saved.begin());
  CHECK_THAT(complaint(*state, saved), ContainsSubstring("it has no 'length'"));
  const auto other = recurrent(RecurrentCell::gru, {.carry_state = true}).model;
  CHECK_THROWS_AS(model->evaluate(random_batch(2), other->new_memory().get()), Error);
}

}  // namespace metaformer
