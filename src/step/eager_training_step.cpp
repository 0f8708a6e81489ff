#include "step/eager_training_step.h"

#include "step/gradients.h"

namespace metaformer {

StepResult EagerTrainingStep::run(std::int64_t step, double learning_rate, const AcceptNorm& accept) {
  passes_.set_step(step);
  PhaseTimer timer(times_, parts_.device);
  const auto batches = training_batches(parts_, step);
  timer.end(StepPhase::batch);
  auto loss = accumulate_gradients(parts_, batches, passes_, timer);
  auto norm = clip_gradients(parts_);
  timer.end(StepPhase::clip);
  if (!accept || accept(norm.item<double>())) parts_.optimizer.step(learning_rate);
  auto result = finish_step(parts_, std::move(loss), norm);
  timer.end(StepPhase::update);
  return result;
}

}  // namespace metaformer
