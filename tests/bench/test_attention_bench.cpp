// What a benchmark says of memory, operations and accuracy is checked; what it says of time cannot be.

#include "bench/attention_bench.h"
#include "bench/step_bench.h"
#include "bench/timing.h"
#include "support/mixer_options.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("the meter counts what tensors take", "[bench]") {
  auto before = torch::ones({1000});
  {
    const MemoryMeter meter(torch::kCPU);
    auto kept = torch::ones({2500});
    CHECK(meter.current_bytes() == 10'000);
    { auto passing = torch::ones({5000}); }
    CHECK(meter.current_bytes() == 10'000);
    CHECK(meter.peak_bytes() == 30'000);
    before = kept;  // outlives the meter
  }
  CHECK(before.sum().item<float>() == 2500);
}

TEST_CASE("the pair table gives p M p", "[bench]") {
  const auto p_bnck = torch::randn({2, 3, 7, 5}, torch::kDouble), packed = torch::randn({3, 15}, torch::kDouble);
  auto metric_nkk = torch::zeros({3, 5, 5}, torch::kDouble);
  for (std::int64_t i = 0, l = 0; i < 5; ++i)
    for (std::int64_t j = 0; j <= i; ++j, ++l)
      for (const auto& [row, column] : {std::pair{i, j}, std::pair{j, i}})
        metric_nkk.select(1, row).select(1, column).copy_(packed.select(1, l));
  const auto expected = torch::einsum("bnck,nkj,bnej->bnce", {p_bnck, metric_nkk, p_bnck});
  CHECK(torch::allclose(pair_table_scores(p_bnck, packed), expected, 1e-12, 1e-12));
  CHECK(pair_table_bytes(32, 8, 256, 48, 4) == 32.0 * 8 * 4 * (256 * 257 / 2) * (48 * 49 / 2));
}

TEST_CASE("operations are those of the products that a layer makes", "[bench]") {
  const AttentionShape shape{.batch = 2, .heads = 3, .context = 10, .head_width = 4};
  const double b = 2, n = 3, c = 10, k = 4, d = 12;
  CHECK(forward_operations(ScaledDotProductOptions{}, shape, false) ==
        4 * 2 * b * c * d * d + 2 * 2 * b * n * c * c * k);
  CHECK(forward_operations(MetricOptions{}, shape, false) ==
        2 * 2 * b * c * d * d + 2 * b * n * c * k * k + 2 * 2 * b * n * c * c * k);
  CHECK(forward_operations(QuadraticOptions{.form = QuadraticForm::full}, shape, false) ==
        2 * 2 * b * c * d * d + 2 * b * n * c * d * d + 2 * b * n * c * c * (d + k));
  CHECK(forward_operations(ScaledDotProductOptions{}, shape, true) == 4 * 2 * b * c * d * d + 2 * 2 * b * n * 55 * k);
  CHECK(forward_operations(IdentityOptions{}, shape, true) == 0);
}

TEST_CASE("operations of a training step are those of its products", "[bench]") {
  TransformerConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = 4;
  config.mixer = IdentityOptions{};
  // 12 tokens; a layer's products 8 -> 32 -> 8, a head of 8 -> 10; backward twice forward
  CHECK(training_operations(config, 10, 12, true) == 3 * (2 * (2.0 * 12 * 2 * 8 * 32) + 2.0 * 12 * 8 * 10));
  config.mixer = ScaledDotProductOptions{};
  const double attention = 4 * 2.0 * 12 * 8 * 8 + 3 * 2 * 2.0 * 10 * 2 * 4;  // 3 rows of 10 visible pairs, 2 heads of 4
  CHECK(training_operations(config, 10, 12, true) == 3 * (2 * (attention + 2.0 * 12 * 2 * 8 * 32) + 2.0 * 12 * 8 * 10));
}

TEST_CASE("operations of a recurrent or feed-forward model are those of its products", "[bench]") {
  GruConfig gru;
  gru.layers = 2;
  gru.width = 8;
  // 12 tokens; of each layer three gates from its input and three from its state
  CHECK(training_operations(gru, 10, 12, true) == 3 * (2 * (2.0 * 12 * 2 * 3 * 8 * 8) + 2.0 * 12 * 8 * 10));
  LstmConfig lstm;
  lstm.layers = 1;
  lstm.width = 8;
  CHECK(training_operations(lstm, 10, 12, true) == 3 * (2.0 * 12 * 2 * 4 * 8 * 8 + 2.0 * 12 * 8 * 10));
  const FeedForwardModelConfig window{.window = 5, .width = 4, .hidden = 16};
  CHECK(training_operations(window, 10, 12, true) == 3 * (2.0 * 12 * 20 * 16 + 2.0 * 12 * 16 * 10));
}

TEST_CASE("memory of composed attention grows with the context, that of the reference with its square", "[bench]") {
  AttentionRequest request;
  for (const std::int64_t context : {128, 256, 512})
    request.shapes.push_back({.batch = 1, .heads = 2, .context = context, .head_width = 16});
  request.mixers = {MetricOptions{.backend = Backend::composed}, MetricOptions{.backend = Backend::reference}};
  request.rounds = 1;
  std::vector<std::string> done;
  const auto results = bench_attention(request, [&](const std::string& line) { done.push_back(line); });
  REQUIRE(results.size() == 6);
  CHECK(done.size() == 3);
  const auto growth = [&](std::size_t backend) {
    return static_cast<double>(results[4 + backend].kept_bytes) / static_cast<double>(results[2 + backend].kept_bytes);
  };
  CHECK(growth(0) < 2.2);
  CHECK(growth(1) > 3);
  for (const auto& result : results) {
    CHECK(result.skipped.empty());
    CHECK(result.ms > 0);
    CHECK(result.teraflops > 0);
    CHECK(result.peak_bytes >= result.kept_bytes);
    REQUIRE(result.error);
    CHECK(*result.error < 1e-5);
    CHECK(*result.error > 0);
  }
}

TEST_CASE("what does not fit is left out, with its size", "[bench]") {
  AttentionRequest request;
  request.shapes = {{.batch = 32, .heads = 8, .context = 2048, .head_width = 48}};
  request.pair_table = true;
  request.rounds = 1;
  const auto results = bench_attention(request, [](const std::string&) {});
  REQUIRE(results.size() == 1);
  CHECK_FALSE(results[0].skipped.empty());
  CHECK(results[0].predicted_bytes > 1e12);
}

}  // namespace metaformer
