#include "step/eager_training_step.h"

namespace metaformer {

StepResult EagerTrainingStep::run(std::int64_t step, double learning_rate, const AcceptNorm& accept) {
  passes_.set_step(step);
  PhaseTimer timer(times_, parts_.device);
  const auto batches = training_batches(parts_, step);
  timer.end(StepPhase::batch);
  auto loss = accumulate_gradients(parts_, batches, passes_, timer);
  auto norm = clip_gradients(parts_.parameters, parts_.config.train.clip);
  timer.end(StepPhase::clip);
  if (!accept || accept(norm.item<double>())) parts_.optimizer.step(learning_rate);
  timer.end(StepPhase::update);
  return {std::move(loss), std::move(norm)};
}

}  // namespace metaformer
