// Trainings in fp16 with a loss scale.

#include <cmath>

#include "base/error.h"
#include "support/failure.h"
#include "support/workplace.h"

namespace metaformer {

TEST_CASE("fp16 trains as fp32 does", "[fp16]") {
  const Workplace place;
  const auto loss = [&](const std::string& precision) {
    return place
        .train(precision, {"train.precision=" + precision, "train.steps=200", "train.eval_interval=200",
                           "train.checkpoint_interval=200"})["val_loss"]
        .get<double>();
  };
  CHECK(std::abs(loss("fp16") - loss("fp32")) < 2e-3);
}

TEST_CASE("a training that overflows at every scale is a divergence", "[fp16][divergence]") {
  const Workplace place;
  const auto [code, message] = failure([&] {
    place.train("run", {"train.precision=fp16", "train.steps=100", "train.eval_interval=100", "train.learning_rate=1e6",
                        "train.schedule.warmup_steps=0", "train.clip=0", "train.optimizer.weight_decay=0"});
  });
  CHECK(code == ExitCode::diverged);
  CHECK_THAT(message, ContainsSubstring("even with a loss scale of 1, is not finite"));
}

}  // namespace metaformer
