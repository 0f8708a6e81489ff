// What a model remembers of sequences can be saved and taken up again.

#include "model/parameters.h"
#include "model/small_models.h"
#include "model/token_model.h"
#include "support/any_mixer.h"

namespace metaformer {

namespace {

constexpr std::int64_t vocabulary = 11, batch = 3;

Gpt model_of(const MixerConfig& mixer) {
  Gpt model(small_transformer(mixer), vocabulary);
  initialise(model, 5);
  return model;
}

torch::Tensor random_ids(std::int64_t length) { return torch::randint(vocabulary, {batch, length}, torch::kLong); }

}  // namespace

TEST_CASE("a state that was saved and loaded continues a sequence with the same bits", "[state]") {
  auto model = model_of(any_mixer());
  const torch::NoGradGuard no_grad;
  const auto state = model.new_state(batch, 12);
  model.evaluate({.ids_bc = random_ids(5)}, state.get());
  const auto saved = copy_of(*state);
  const auto loaded = model.new_state(batch, 12);
  loaded->load(saved, "a file");
  CHECK(loaded->length() == 5);
  CHECK(loaded->bytes() == state->bytes());
  const auto next = random_ids(3), last = random_ids(1);
  CHECK(torch::equal(model.evaluate({.ids_bc = next}, state.get()), model.evaluate({.ids_bc = next}, loaded.get())));
  // And so do decoders.
  const auto one = model.decoder(batch), other = model.decoder(batch);
  if (chooses_by_whole_sequence(model.config().mixer)) return;
  REQUIRE(one != nullptr);
  one->resume(*state);
  other->resume(*loaded);
  const std::vector<std::int32_t> tokens = {1, 2, 3};
  for (int i = 0; i < 2; ++i) {
    const auto expected = one->step(tokens), given = other->step(tokens);
    CHECK(std::vector(expected.begin(), expected.end()) == std::vector(given.begin(), given.end()));
  }
}

TEST_CASE("a state that was reset is like a new one", "[state]") {
  auto model = model_of(any_mixer());
  const torch::NoGradGuard no_grad;
  const auto used = model.new_state(batch, 12), fresh = model.new_state(batch, 12);
  model.evaluate({.ids_bc = random_ids(7)}, used.get());
  used->reset();
  CHECK(used->length() == 0);
  const auto ids = random_ids(4);
  CHECK(torch::equal(model.evaluate({.ids_bc = ids}, used.get()), model.evaluate({.ids_bc = ids}, fresh.get())));
}

TEST_CASE("what was saved of another model, batch or length is refused, and the state stays as it was", "[state]") {
  auto model = model_of(MetricOptions{});
  const torch::NoGradGuard no_grad;
  const auto state = model.new_state(batch, 12);
  model.evaluate({.ids_bc = random_ids(5)}, state.get());
  auto saved = copy_of(*state);
  CHECK_THAT(complaint(*model.new_state(2, 12), saved), ContainsSubstring("is not of 2 sequences"));
  CHECK_THAT(complaint(*model.new_state(batch, 4), saved), ContainsSubstring("5 tokens are more than the 4"));
  auto unknown = saved;
  unknown.emplace_back("blocks.7.slot_0", saved.back().second);
  CHECK_THAT(complaint(*state, unknown), ContainsSubstring("blocks.7.slot_0"));
  unknown.back().first = "blocks.0.memory";
  CHECK_THAT(complaint(*state, unknown), ContainsSubstring("memory"));
  saved.erase(saved.begin());
  CHECK_THAT(complaint(*state, saved), ContainsSubstring("it has no 'length'"));
  // Of a wider model: seen when the sequence goes on.
  Gpt wide(small_transformer(MetricOptions{}, 16), vocabulary);
  const auto wide_state = wide.new_state(batch, 12);
  wide_state->load(copy_of(*state), "a file");
  CHECK_THROWS_WITH(wide.evaluate({.ids_bc = random_ids(1)}, wide_state.get()), ContainsSubstring("other sizes"));
}

}  // namespace metaformer
