// Text from graphs of device work is that of the host.

#include "config/mixer_config.h"
#include "infer/generated_text.h"
#include "support/any_mixer.h"
#include "support/any_positions.h"

namespace metaformer {

namespace {

// Small enough that every bucket of a context of 9 is reached, warmed up and recorded.
constexpr DeviceGenerationPlan small_plan{.smallest_bucket = 2, .steps_to_warm_up = 1, .longest_chunk = 8};

// Greedy text, in both windows, after prompts within and beyond the context.
void check_text(const TransformerConfig& config) {
  const auto model = random_gpt(config);
  const SamplingOptions greedy{.temperature = 0, .window = GENERATE(WindowKind::half, WindowKind::slide)};
  for (const std::int64_t length : {1, 5, 30}) {
    const auto prompt = prompt_of(length);
    GraphCounts counts;
    CHECK(by_device(*model, prompt, greedy, 2, 30, small_plan, counts) == by_host(*model, prompt, greedy, 2, 30));
    CHECK(counts.replays > 20);
  }
}

}  // namespace

TEST_CASE("graphs generate the host's text, with every mixer, past the context too", "[sampling]") {
  auto config = small_config(9);
  config.mixer = any_mixer();
  check_text(config);
}

TEST_CASE("graphs generate the host's text, with every kind of positions, past the context too", "[sampling]") {
  auto config = small_config(9);
  config.positions = any_positions();
  config.mixer = GENERATE(MixerConfig(ScaledDotProductOptions{}), MixerConfig(MetricOptions{}),
                          MixerConfig(MetricOptions{.score = MetricScore::distance}),
                          MixerConfig(QuadraticOptions{.form = QuadraticForm::full}));
  check_text(config);
}

TEST_CASE("graphs draw the host's random numbers, for every sample", "[sampling]") {
  const auto model = random_gpt(small_config(GENERATE(1, 2, 12)));
  const SamplingOptions options{.temperature = 1.3,
                                .top_k = GENERATE(0, 6),
                                .top_p = GENERATE(0.9, 1.0),
                                .window = GENERATE(WindowKind::half, WindowKind::slide)};
  GraphCounts counts;
  CHECK(by_device(*model, {1, 2, 3}, options, 5, 50, small_plan, counts) == by_host(*model, {1, 2, 3}, options, 5, 50));
}

TEST_CASE("ids without a token are never generated, by graphs and by the host", "[sampling]") {
  const auto model = random_gpt(small_config(8));
  const Tokens never = {0, 2, 3};
  const SamplingOptions options{.temperature = GENERATE(0.0, 2.0), .top_k = GENERATE(0, 2), .never = never};
  GraphCounts counts;
  const auto text = by_device(*model, {1, 2, 3}, options, 3, 60, small_plan, counts);
  CHECK(text == by_host(*model, {1, 2, 3}, options, 3, 60));
  for (const auto id : never) CHECK(std::count(text.begin(), text.end(), id) == 0);
}

TEST_CASE("the text does not depend on chunks, buckets or what is warmed up", "[sampling]") {
  const auto model = random_gpt(small_config(24));
  const SamplingOptions options{.temperature = 1, .window = GENERATE(WindowKind::half, WindowKind::slide)};
  const auto expected = by_host(*model, {4, 5}, options, 3, 70);
  for (const std::int64_t smallest_bucket : {1, 3, 32})
    for (const std::int64_t warm : {0, 4, 1000})
      for (const std::int64_t chunk : {1, 7, 100}) {
        const DeviceGenerationPlan plan{.smallest_bucket = smallest_bucket,
                                        .steps_to_warm_up = warm,
                                        .first_chunk = std::min<std::int64_t>(chunk, 2),
                                        .longest_chunk = chunk};
        GraphCounts counts;
        CHECK(by_device(*model, {4, 5}, options, 3, 70, plan, counts) == expected);
      }
}

}  // namespace metaformer
