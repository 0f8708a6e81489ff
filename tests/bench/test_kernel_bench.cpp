#include "bench/kernel_bench.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("every kernel is timed on both sides", "[bench]") {
  const auto type = GENERATE(torch::kFloat, torch::kBFloat16);
  const auto head_width = GENERATE(3, 8);  // of an odd one nothing is rotated
  const auto results = bench_kernels(
      {.shape = {.batch = 2, .heads = 2, .context = 5, .head_width = head_width}, .type = type, .rounds = 2});
  std::vector<std::string> kernels;
  for (const auto& result : results) {
    CHECK(result.ms > 0);
    CHECK(result.library_ms > 0);
    CHECK(result.ratio > 0);
    kernels.push_back(result.kernel);
  }
  std::vector<std::string> expected = {"attention", "gelu", "gated silu", "dropout", "rms_norm"};
  if (head_width == 8) expected.push_back("rotary");
  expected.insert(expected.end(), {"cross_entropy", "linear layer"});
  CHECK(kernels == expected);
}

}  // namespace metaformer
