// Which graphs are recorded and replayed, and what happens where there are none.

#include "config/mixer_config.h"
#include "infer/generated_text.h"

namespace metaformer {

TEST_CASE("one graph is recorded for each bucket that is used often, and replayed for all its tokens", "[sampling]") {
  const auto model = random_gpt(small_config(20));
  GraphCounts counts;
  // Windows of 1 to 20 tokens, then of 10 to 20 again and again: buckets of 4, 8, 16 and 20.
  constexpr int tokens = 20 + 11 * 10, warm = 3, chunk = 32;
  by_device(*model, {1}, {}, 1, tokens, {.smallest_bucket = 4, .steps_to_warm_up = warm, .longest_chunk = chunk},
            counts);
  CHECK(counts.captures == 4);
  CHECK(counts.replays >= tokens - 4 * warm);  // the rest of the last chunk is generated, too
  CHECK(counts.replays < tokens - 4 * warm + chunk);
}

TEST_CASE("the first token needs one step, and chunks grow", "[sampling]") {
  const auto model = random_gpt(small_config(8));
  GraphCounts counts;
  const torch::InferenceMode inference;
  DeviceGenerator generator(*model, {1}, 1, {}, torch::kCPU, graphs_by_hand(counts), {.steps_to_warm_up = 0});
  std::vector<int> replays;
  for (int i = 0; i < 64; ++i) {
    generator.next();
    if (replays.empty() || replays.back() != counts.replays) replays.push_back(counts.replays);
  }
  CHECK(replays == std::vector<int>{1, 3, 7, 15, 31, 63, 95});
}

TEST_CASE("after a recording that failed the same text goes on, and none is tried again", "[sampling]") {
  const auto model = random_gpt(small_config(48));  // buckets of 32 and 48
  const SamplingOptions options{.temperature = 1, .window = GENERATE(WindowKind::half, WindowKind::slide)};
  const auto expected = by_host(*model, {1, 2}, options, 3, 150);
  GraphCounts counts;
  const int failing = GENERATE(1, 2);
  TextGenerator generator(*model, {1, 2}, options, torch::kCPU, 3, graphs_by_hand(counts, failing));
  CHECK(generate(generator, 150) == expected);
  CHECK((generator.cache_bytes() > 0) == (options.window == WindowKind::half));
  CHECK(counts.captures == failing);
  CHECK((counts.replays > 0) == (failing == 2));
}

TEST_CASE("without graphs on the device the same text comes from the host", "[sampling]") {
  const auto model = random_gpt(small_config(16));
  const SamplingOptions options{.temperature = 1};
  int asked = 0;
  const auto none = [&](torch::Device, std::string& problem) {
    ++asked;
    problem = "there are none here";
    return std::unique_ptr<DeviceGraph>();
  };
  TextGenerator generator(*model, {1}, options, torch::kCPU, 2, none);
  CHECK(generate(generator, 60) == by_host(*model, {1}, options, 2, 60));
  CHECK(generator.cache_bytes() > 0);
  CHECK(asked == 1);
}

TEST_CASE("a text that padding would change is not recorded", "[sampling]") {
  auto config = small_config(16);
  config.mixer = LshOptions{.rounds = 2, .chunk = 4};
  const auto model = random_gpt(config);
  GraphCounts counts;
  TextGenerator generator(*model, {1, 2}, {.temperature = 1}, torch::kCPU, 2, graphs_by_hand(counts));
  CHECK(generate(generator, 40) == by_host(*model, {1, 2}, {.temperature = 1}, 2, 40));
  CHECK(counts.captures == 0);
}

TEST_CASE("graphs replace the cache, where they are wanted and expected to pay", "[sampling]") {
  const auto used = [](Gpt& model, const SamplingOptions& options, std::int64_t samples) {
    GraphCounts counts;
    TextGenerator generator(model, {1}, options, torch::kCPU, samples, graphs_by_hand(counts));
    for (int i = 0; i < 10; ++i) generator.next();
    return std::string(counts.captures > 0 ? "graphs" : "") + (generator.cache_bytes() > 0 ? "cache" : "");
  };
  const auto model = random_gpt(small_config(16));
  CHECK(used(*model, {}, 2) == "graphs");
  CHECK(used(*model, {.cached = false}, 2) == "");
  CHECK(used(*model, {.graphs = false}, 2) == "cache");

  auto config = small_config(16);
  config.width = 256;
  const auto wide = random_gpt(config);  // 50 million operations for a context
  CHECK(used(*wide, {}, 1) == "graphs");
  CHECK(used(*wide, {}, 100) == "cache");
}

TEST_CASE("on the CPU nothing is recorded unless graphs are given", "[sampling]") {
  const auto model = random_gpt(small_config(16));
  TextGenerator generator(*model, {1}, {}, torch::kCPU);
  generator.next();
  CHECK(generator.cache_bytes() > 0);
}

}  // namespace metaformer
