#include <thread>

#include "attention/score_positions.h"
#include "support/torch_catch.h"

namespace metaformer {

TEST_CASE("threads that rotate ever longer sequences at once find the right tables", "[rotary]") {
  constexpr std::int64_t threads = 4, longest = 40, k = 8;
  const RotaryPositionsConfig config;
  for (int round = 0; round < 20; ++round) {
    RotaryPositions shared(config, k);
    std::vector<int> wrong(threads, 0);
    std::vector<std::thread> workers;
    for (std::int64_t worker = 0; worker < threads; ++worker)
      workers.emplace_back([&, worker] {
        RotaryPositions own(config, k);
        for (std::int64_t tokens = worker + 1; tokens <= longest; ++tokens) {
          const auto x_bnck = torch::ones({1, 1, tokens, k});
          wrong[static_cast<std::size_t>(worker)] +=
              !torch::equal(shared.rotate(x_bnck, tokens), own.rotate(x_bnck, tokens));
        }
      });
    for (auto& worker : workers) worker.join();
    CHECK(wrong == std::vector<int>(threads, 0));
  }
}

}  // namespace metaformer
