// Text from recurrent and feed-forward language models.

#include "base/random.h"
#include "infer/sampling.h"
#include "model/feed_forward_model.h"
#include "model/recurrent_model.h"
#include "support/torch_catch.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 11, context = 6;

std::shared_ptr<SequenceModel> recurrent_model(RecurrentCell cell, bool carry_state) {
  RecurrentConfig config{.cell = cell};
  config.width = 8;
  config.context = context;
  config.carry_state = carry_state;
  return std::make_shared<RecurrentModel>(config, vocabulary);
}

// Weights from N(0, 0.5).
std::shared_ptr<SequenceModel> any_model() {
  auto model = [&]() -> std::shared_ptr<SequenceModel> {
    switch (GENERATE(0, 1, 2)) {
      case 0:
        return recurrent_model(RecurrentCell::lstm, GENERATE(true, false));
      case 1:
        return recurrent_model(RecurrentCell::gru, false);
      default:
        FeedForwardModelConfig config;
        config.window = GENERATE(2, 4);
        config.width = 4;
        config.context = context;
        return std::make_shared<FeedForwardModel>(config, vocabulary);
    }
  }();
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.normal_(0, 0.5);
  return model;
}

using Tokens = std::vector<std::int32_t>;

// Of several continuations of a prompt that is longer than the context.
std::vector<Tokens> generate(SequenceModel& model, const SamplingOptions& options, std::int64_t samples) {
  const Tokens prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  TextGenerator generator(model, prompt, options, torch::kCPU, samples);
  std::vector<Tokens> texts(static_cast<std::size_t>(samples));
  for (int i = 0; i < 30; ++i) {
    const auto& tokens = generator.next();
    for (std::size_t s = 0; s < texts.size(); ++s) texts[s].push_back(tokens.at(s));
  }
  CHECK((generator.cache_bytes() > 0) == options.cached);
  return texts;
}

// Every token from one pass over all tokens before it.
Tokens recompute(SequenceModel& model, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  TokenPicker picker({.temperature = 1});
  std::vector<std::int64_t> all = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  Tokens generated;
  for (std::uint64_t i = 0; i < 30; ++i) {
    const auto logits_v =
        model.evaluate({.ids_bc = torch::tensor(all).unsqueeze(0)})[0][-1].to(torch::kDouble).contiguous();
    const std::span<const double> values(logits_v.data_ptr<double>(), static_cast<std::size_t>(logits_v.numel()));
    generated.push_back(picker.pick(values, Rng(seed, RandomPurpose::sampling, 0).uniform(i)));
    all.push_back(generated.back());
  }
  return generated;
}

}  // namespace

TEST_CASE("text goes on past the context as if all of it were read at once", "[sampling]") {
  const auto model = any_model();
  const bool cached = GENERATE(true, false);
  const auto texts = generate(*model, {.temperature = 1, .seed = 4, .cached = cached}, 1);
  CHECK(texts[0] == recompute(*model, 4));
  CHECK(texts[0] != recompute(*model, 5));
}

TEST_CASE("samples of such a model are those of one by one", "[sampling]") {
  const auto model = any_model();
  const auto three = generate(*model, {.temperature = 1}, 3);
  CHECK(three[0] == generate(*model, {.temperature = 1}, 1)[0]);
  CHECK(three[0] != three[1]);
  CHECK_FALSE(should_record(*model, 1));
}

}  // namespace metaformer
