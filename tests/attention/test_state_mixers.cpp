// Mixers without scores: a text that is mixed in parts, or token by token, equals the whole text at every length.

#include "attention/mixer_support.h"
#include "ops/state_mixing.h"
#include "support/any_mixer.h"

namespace metaformer::test_state_mixers {

static constexpr MixerShape shape{.width = 12, .heads = 3, .context = 200};

static MixerConfig any_mixer_without_scores() {
  static const auto all = every_mixer_that(
      [](const MixerConfig& mixer) { return !has_scores(mixer) && !chooses_by_whole_sequence(mixer); });
  return one_of(all);
}

static MixerConfig any_state_mixer() {
  static const auto all = every_mixer_that(carries_state);
  return one_of(all);
}

// Mixes a text in parts that end at `ends`, each with the state after the previous part.
static torch::Tensor mixed_in_parts(Mixer& mixer, const torch::Tensor& x_bcd, const torch::Tensor& segment_bc,
                                    const std::vector<std::int64_t>& ends) {
  MixerState state(x_bcd.size(1));
  std::vector<torch::Tensor> parts;
  std::int64_t first = 0;
  for (const auto end : ends) {
    const auto part = [&](const torch::Tensor& x) { return x.defined() ? x.narrow(1, first, end - first) : x; };
    auto visibility = self_visibility(true, part(segment_bc));
    if (segment_bc.defined()) visibility.key_segment_be = segment_bc.narrow(1, 0, end);
    parts.push_back(mix(mixer, part(x_bcd).contiguous(), visibility, &state));
    first = end;
  }
  return torch::cat(parts, 1);
}

TEST_CASE("a text in parts or token by token equals the whole text, at every length", "[state_mixers]") {
  const auto options = any_mixer_without_scores();
  const auto chunk = tokens_of_chunk(1000);
  const auto tokens =
      GENERATE_COPY(values({std::int64_t{1}, std::int64_t{2}, chunk - 1, chunk, chunk + 1, 3 * chunk + 5}));
  const auto type = GENERATE(torch::kDouble, torch::kFloat);
  INFO(describe(options) << " " << tokens << " tokens, " << type);
  torch::manual_seed(7);
  const auto mixer = make_mixer(options, shape);
  const torch::NoGradGuard no_grad;
  for (auto& parameter : mixer->parameters()) parameter.normal_(0, 0.2);
  mixer->to(type);
  const auto x = torch::randn({2, tokens, 12}, type);
  const auto whole = mix(*mixer, x, self_visibility(true, {}));
  mixer->to(torch::kDouble);
  const auto exact = mix(*mixer, x.to(torch::kDouble), self_visibility(true, {}));
  const double tolerance = type == torch::kDouble ? 1e-11 : 2e-5;
  mixer->to(type);
  CHECK(relative_error(whole, exact) < tolerance);
  std::vector<std::int64_t> each;
  for (std::int64_t t = 1; t <= tokens; ++t) each.push_back(t);
  CHECK(relative_error(mixed_in_parts(*mixer, x, {}, each), exact) < tolerance);
  if (tokens < 3) return;
  CHECK(relative_error(mixed_in_parts(*mixer, x, {}, {tokens / 3, tokens}), exact) < tolerance);
}

TEST_CASE("a text that begins within a part or at its edge does not see the texts before it", "[state_mixers]") {
  const auto options = any_mixer_without_scores();
  INFO(describe(options));
  const auto mixer = random_mixer(options, shape);
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({2, 90, 12}, torch::kDouble);
  auto segment_bc = torch::zeros({2, 90}, torch::kLong);
  segment_bc[0].narrow(0, 30, 60).fill_(1);
  segment_bc[0].narrow(0, 70, 20).fill_(2);
  segment_bc[1].narrow(0, 64, 26).fill_(1);
  const auto whole = mix(*mixer, x, self_visibility(true, segment_bc));
  CHECK(relative_error(mixed_in_parts(*mixer, x, segment_bc, {30, 64, 65, 72, 90}), whole) < 1e-11);
  const auto alone = x.narrow(1, 30, 40).contiguous();  // the second text of the first row
  const auto expected = mix(*mixer, alone, self_visibility(true, {}));
  CHECK(relative_error(whole[0].narrow(0, 30, 40), expected[0]) < 1e-11);
}

TEST_CASE("the memory of a state does not depend on the length of the text", "[state_mixers]") {
  const auto options = any_state_mixer();
  INFO(describe(options));
  const auto mixer = random_mixer(options, shape);
  const torch::NoGradGuard no_grad;
  const auto bytes_after = [&](std::int64_t tokens) {
    MixerState state(tokens);
    mix(*mixer, torch::randn({1, tokens, 12}, torch::kDouble), self_visibility(true, {}), &state);
    return state.bytes();
  };
  CHECK(bytes_after(5) == bytes_after(200));
  CHECK(bytes_after(5) > 0);
}

TEST_CASE("the computed size of a state equals its size after a text", "[state_mixers]") {
  const auto options = any_mixer_at_all();
  INFO(describe(options));
  const auto sizes = sizes_of(options, with_pairs(shape, options), 9);
  if (chooses_by_whole_sequence(options)) {
    CHECK_FALSE(sizes.state_bytes.has_value());
    return;
  }
  const auto mixer = random_mixer(options, shape, torch::kFloat);
  const torch::NoGradGuard no_grad;
  MixerState state(9);
  mix(*mixer, torch::randn({1, 9, 12}), self_visibility(true, {}), &state);
  CHECK(sizes.state_bytes == state.bytes());
}

}  // namespace metaformer::test_state_mixers
