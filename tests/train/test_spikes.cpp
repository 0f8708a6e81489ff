// Gradient norms that stand out.

#include <cmath>
#include <limits>

#include "support/workplace.h"
#include "train/divergence.h"

namespace metaformer {

TEST_CASE("norms that stand out are spikes, and teach nothing", "[spike]") {
  SpikeState state;
  for (int step = 0; step < 200; ++step) REQUIRE_FALSE(is_spike(state, 1 + 0.3 * std::sin(step * 1.7), 6));
  const auto before = state.mean;
  CHECK(is_spike(state, 100, 6));
  CHECK(is_spike(state, 1e30, 6));
  CHECK(state.mean == before);
  CHECK(state.count == 2);
  CHECK_FALSE(is_spike(state, 1.2, 6));
  CHECK_FALSE(is_spike(state, 1e-9, 6));  // a small one is none
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    CHECK_FALSE(is_spike(state, odd, 6));
    CHECK(std::isfinite(state.mean));
  }
  CHECK_FALSE(is_spike(state, 1e30, 0));
  SpikeState young;
  CHECK_FALSE(is_spike(young, 1, 6));
  CHECK_FALSE(is_spike(young, 1e6, 6));  // too early to judge
}

TEST_CASE("a skipped spike leaves the parameters as they were", "[spike]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  parts.run(0, 1e-2);
  const auto before = parts.parameters->values().clone();
  double seen = 0;
  const auto result = parts.run(1, 1e-2, [&](double norm) {
    seen = norm;
    return false;
  });
  CHECK(torch::equal(parts.parameters->values(), before));
  CHECK(seen == result.gradient_norm.item<double>());
  parts.run(1, 1e-2, [](double) { return true; });
  CHECK_FALSE(torch::equal(parts.parameters->values(), before));
}

}  // namespace metaformer
