// Random numbers of passes: functions of (seed, step, number of the draw).

#include <set>

#include "ops/pass.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("draws differ by seed, step and number, and by nothing else", "[pass]") {
  std::set<std::uint64_t> seen;
  const auto draws = [&](std::uint64_t seed, std::int64_t step, std::int64_t first_row) {
    StepPasses passes(seed, torch::kCPU);
    passes.set_step(step);
    std::vector<std::uint64_t> seeds;
    auto pass = passes.pass(first_row);
    for (int i = 0; i < 5; ++i) {
      const auto draw = pass.random.next();
      CHECK(draw.first_row == first_row);
      seeds.push_back(draw.seed());
    }
    return seeds;
  };
  for (const std::uint64_t seed : {1, 2})
    for (const std::int64_t step : {0, 1, 1000}) {
      const auto seeds = draws(seed, step, 3);
      seen.insert(seeds.begin(), seeds.end());
      CHECK(seeds == draws(seed, step, 0));
    }
  CHECK(seen.size() == 2 * 3 * 5);
}

TEST_CASE("a stream can be copied and put back", "[pass]") {
  StepPasses passes(3, torch::kCPU);
  auto pass = passes.pass(0);
  pass.random.next();
  auto copy = pass;
  const auto place = pass.random.place();
  const auto second = pass.random.next().seed(), third = pass.random.next().seed();
  CHECK(copy.random.next().seed() == second);
  pass.random.go_back(place);
  CHECK(pass.random.next().seed() == second);
  CHECK(pass.random.next().seed() == third);
}

TEST_CASE("a key is read when something is drawn", "[pass]") {
  StepPasses passes(3, torch::kCPU), later(3, torch::kCPU);
  passes.set_step(1);
  later.set_step(2);
  auto recorded = passes.pass(0), expected = later.pass(0);
  passes.set_step(2);
  CHECK(recorded.random.next().seed() == expected.random.next().seed());
}

TEST_CASE("a pass that evaluates has no random numbers", "[pass]") {
  Pass pass;
  CHECK_THROWS(pass.random.next());
}

}  // namespace metaformer
