// Steps with a loss scale.

#include <limits>

#include "support/graph_by_hand.h"
#include "support/workplace.h"
#include "train/optim/optimizers.h"

namespace metaformer {

namespace {

// Parts whose gradients are scaled, in the precision that the config gives.
void scale_losses(Parts& parts) {
  parts.loss_scale = std::make_unique<LossScale>(torch::kCPU);
  parts.optimizer = make_optimizer(*parts.parameters, parts.experiment.config.train, parts.loss_scale->of_gradients());
}

// From now on one parameter gets an infinite gradient in the steps where `*overflows`.
void inject_overflows(Parts& parts, const std::shared_ptr<bool>& overflows) {
  parts.parameters->views()[2].parameter.register_hook([overflows](const torch::Tensor& gradient) {
    return *overflows ? gradient * std::numeric_limits<float>::infinity() : gradient;
  });
}

}  // namespace

TEST_CASE("a scale that is a power of two changes nothing but the gradients' exponents", "[fp16]") {
  const Workplace place;
  const std::string clip = GENERATE("0", "0.1");
  const std::string optimizer = GENERATE("adamw", "adam", "sgd", "muon");
  const auto experiment =
      place.experiment({"train.accumulate=2", "train.clip=" + clip, "train.optimizer=" + optimizer});
  Parts plain(experiment), scaled(experiment);
  scale_losses(scaled);
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto expected = plain.run(step, 1e-2), given = scaled.run(step, 1e-2);
    CHECK(given.loss.item<double>() == expected.loss.item<double>());
    CHECK(given.gradient_norm.item<double>() == Approx(expected.gradient_norm.item<double>()).epsilon(1e-6));
    CHECK_FALSE(given.skipped.item<bool>());
  }
  CHECK(torch::allclose(scaled.parameters->values(), plain.parameters->values(), 1e-6, 1e-7));
}

TEST_CASE("a step that overflows is skipped, halves the scale, and leaves no trace, eager or replayed", "[fp16]") {
  const Workplace place;
  const auto experiment = place.experiment({"model.mixer=metric", "train.precision=fp16"});
  Parts eager(experiment), parts(experiment);
  GraphCounts counts;
  parts.replay_by(std::make_unique<GraphByHand>(counts));
  const auto overflows = std::make_shared<bool>(false);
  inject_overflows(eager, overflows);
  inject_overflows(parts, overflows);
  for (std::int64_t step = 0; step < 8; ++step) {
    *overflows = step == 1 || step == 5;
    const auto before = parts.parameters->values().clone();
    const double scale = parts.loss_scale->factor().item<double>();
    const auto expected = eager.run(step, 1e-3), given = parts.run(step, 1e-3);
    INFO("step " << step);
    CHECK(given.skipped.item<bool>() == *overflows);
    CHECK(expected.skipped.item<bool>() == *overflows);
    CHECK_FALSE(given.exhausted.item<bool>());
    CHECK(torch::equal(parts.parameters->values(), before) == *overflows);
    CHECK(parts.loss_scale->factor().item<double>() == (*overflows ? scale / 2 : scale));
    CHECK(std::isfinite(given.loss.item<double>()));
  }
  CHECK(parts.replays());
  CHECK(torch::allclose(parts.parameters->values(), eager.parameters->values(), 1e-5, 1e-7));
}

}  // namespace metaformer
