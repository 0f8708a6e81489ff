#include <limits>

#include "support/torch_catch.h"
#include "train/optim/optimizer.h"

namespace metaformer {

namespace {

void finish_step(LossScale& scale, bool overflows) {
  scale.unscaled_norm(torch::tensor(overflows ? std::numeric_limits<float>::infinity() : 3.F));
  scale.adapt();
}

double factor(const LossScale& scale) { return scale.factor().item<double>(); }

}  // namespace

TEST_CASE("the loss scale is halved by an overflow and doubled after 2,000 good steps", "[fp16]") {
  LossScale scale(torch::kCPU);
  CHECK(factor(scale) == 65536);
  CHECK(scale.unscaled_norm(torch::tensor(131072.F)).item<double>() == 2);
  finish_step(scale, true);
  CHECK(factor(scale) == 32768);
  for (int i = 0; i < 1999; ++i) finish_step(scale, false);
  CHECK(factor(scale) == 32768);
  const auto saved = scale.state();
  LossScale later(torch::kCPU);
  for (std::size_t i = 0; i < saved.size(); ++i) later.state()[i].second.copy_(saved[i].second);
  finish_step(later, false);
  CHECK(factor(later) == 65536);
  finish_step(scale, true);  // counts from 0 again
  for (int i = 0; i < 1999; ++i) finish_step(scale, false);
  CHECK(factor(scale) == 16384);
  later.reset();
  CHECK(factor(later) == 65536);
}

TEST_CASE("an overflow with the smallest loss scale exhausts it", "[fp16]") {
  LossScale scale(torch::kCPU);
  for (int i = 0; i < 16; ++i) {
    scale.unscaled_norm(torch::tensor(std::numeric_limits<float>::quiet_NaN()));
    CHECK(scale.is_skipped().item<bool>());
    CHECK_FALSE(scale.is_exhausted().item<bool>());
    scale.adapt();
  }
  CHECK(factor(scale) == 1);
  scale.unscaled_norm(torch::tensor(std::numeric_limits<float>::infinity()));
  CHECK(scale.is_exhausted().item<bool>());
  scale.adapt();
  CHECK(factor(scale) == 1);
  scale.unscaled_norm(torch::tensor(1.F));
  CHECK_FALSE(scale.is_skipped().item<bool>());
  CHECK_FALSE(scale.is_exhausted().item<bool>());
}

}  // namespace metaformer
