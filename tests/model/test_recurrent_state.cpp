// What recurrent and feed-forward language models remember of sequences can be saved and taken up again.

#include <fmt/format.h>

#include "base/error.h"
#include "model/feed_forward_model.h"
#include "model/parameters.h"
#include "model/recurrent_model.h"
#include "support/failure.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 11, batch = 3;

std::unique_ptr<SequenceModel> recurrent_model(RecurrentCell cell) {
  RecurrentConfig config{.cell = cell};
  config.width = 8;
  config.carry_state = true;
  return std::make_unique<RecurrentModel>(config, vocabulary);
}

std::unique_ptr<SequenceModel> window_model(std::int64_t window) {
  FeedForwardModelConfig config;
  config.window = window;
  config.width = 4;
  config.hidden = 6;
  return std::make_unique<FeedForwardModel>(config, vocabulary);
}

// With initial weights; each kind of state once.
std::unique_ptr<SequenceModel> any_model() {
  auto model = [] {
    switch (GENERATE(0, 1, 2, 3)) {
      case 0:
        return recurrent_model(RecurrentCell::lstm);
      case 1:
        return recurrent_model(RecurrentCell::gru);
      case 2:
        return window_model(5);
      default:
        return window_model(1);
    }
  }();
  initialise(*model, 5);
  return model;
}

Batch random_batch(std::int64_t length, bool with_documents = false) {
  torch::manual_seed(length);
  Batch made{.ids_bc = torch::randint(vocabulary, {batch, length}, torch::kLong)};
  if (with_documents) made.segments_bc = torch::randint(2, {batch, length}, torch::kLong).cumsum(1);
  return made;
}

// As a file would keep it.
NamedTensors copy_of(const ModelState& state) {
  NamedTensors copy;
  for (const auto& [name, tensor] : state.tensors()) copy.emplace_back(name, tensor.clone());
  return copy;
}

std::string complaint(ModelState& target, const NamedTensors& saved) {
  const auto length = target.length();
  const auto [code, message] = failure([&] { target.load(saved, "a file"); });
  CHECK(code == ExitCode::usage);
  CHECK_THAT(message, ContainsSubstring("a file: cannot go on from it: "));
  CHECK(target.length() == length);
  return message;
}

}  // namespace

TEST_CASE("a state of any language model that was saved and loaded goes on with the same bits", "[state]") {
  const torch::NoGradGuard no_grad;
  const auto model = any_model();
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
  const auto lstm = recurrent_model(RecurrentCell::lstm), gru = recurrent_model(RecurrentCell::gru);
  const auto state = lstm->new_memory();
  lstm->evaluate(random_batch(5), state.get());
  auto saved = copy_of(*state);
  CHECK_THAT(complaint(*gru->new_memory(), saved), ContainsSubstring("this model has no 'cell'"));
  auto narrow = saved;
  narrow[1].second = torch::zeros({2, batch, 7});
  CHECK_THAT(
      complaint(*state, narrow),
      ContainsSubstring(fmt::format("'hidden' has shape [2, {}, 7], and this model expects [2, any, 8]", batch)));
  for (const auto& shape : {std::vector<std::int64_t>{}, {2}, {2, batch + 1, 8}, {1, batch, 8}}) {
    auto wrong = saved;
    wrong[2].second = torch::zeros(shape);
    CHECK_THAT(complaint(*state, wrong),
               ContainsSubstring("'cell' has shape [") && ContainsSubstring(fmt::format("expects [2, {}, 8]", batch)));
  }
  const auto with_length = [&](const torch::Tensor& length) {
    auto wrong = saved;
    wrong[0].second = length;
    return complaint(*state, wrong);
  };
  CHECK_THAT(
      with_length(torch::tensor(std::int64_t{9'000'000'000'000'000'000})),
      ContainsSubstring("'length' is 9e+18, and a number of tokens is a whole number from 0 to 9007199254740992"));
  CHECK_THAT(with_length(torch::tensor(std::int64_t{-1})), ContainsSubstring("'length' is -1, "));
  CHECK_THAT(with_length(torch::tensor(1.5)), ContainsSubstring("'length' is 1.5, "));
  CHECK_THAT(with_length(torch::ones({2}, torch::kLong)), ContainsSubstring("'length' has shape [2], "));
  auto partial = saved;
  partial.pop_back();
  CHECK_THAT(complaint(*state, partial), ContainsSubstring("a part of the state is missing"));
  saved.erase(saved.begin());
  CHECK_THAT(complaint(*state, saved), ContainsSubstring("a part of the state is missing"));
  state->load({}, "a file");  // of a run that had not begun
  CHECK(state->length() == 0);
  CHECK_THROWS_WITH(lstm->evaluate(random_batch(2), window_model(3)->new_state(batch, 1).get()),
                    ContainsSubstring("another kind of model"));
}

TEST_CASE("a window of another length or batch is refused", "[state]") {
  const torch::NoGradGuard no_grad;
  const auto model = window_model(5);
  const auto state = model->new_state(batch, 12);
  model->evaluate(random_batch(7), state.get());
  auto saved = copy_of(*state);
  CHECK_THAT(complaint(*window_model(4)->new_state(batch, 12), saved),
             ContainsSubstring("of 3 sequences and 3 tokens"));
  CHECK_THAT(complaint(*model->new_state(2, 12), saved), ContainsSubstring("of 2 sequences and 4 tokens"));
  auto unknown = saved;
  unknown.emplace_back("cell", torch::zeros(1));
  CHECK_THAT(complaint(*state, unknown), ContainsSubstring("this model has no 'cell'"));
  saved.erase(saved.begin());
  CHECK_THAT(complaint(*state, saved), ContainsSubstring("it has no 'length'"));
  CHECK_THROWS_WITH(model->evaluate(random_batch(2), recurrent_model(RecurrentCell::gru)->new_memory().get()),
                    ContainsSubstring("another kind of model"));
}

}  // namespace metaformer
