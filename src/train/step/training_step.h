#pragma once
// One optimiser step, eager or replayed.

#include <functional>
#include <vector>

#include "ops/device.h"
#include "train/step/batch_loss.h"

namespace metaformer {

// One optimiser step: forward, backward, clipping, update. Faster implementations go behind this interface.

// Scalars on the device, not read yet: reading waits for the device.
struct StepResult {
  torch::Tensor loss;           // mean over the step's targets
  torch::Tensor gradient_norm;  // before clipping
  // Both undefined without a loss scale. Booleans: the gradients were not finite, so nothing was updated; and even the
  // smallest scale does not help.
  torch::Tensor skipped, exhausted;
};

// Receives the gradient norm before the update; false leaves the parameters as they are.
using AcceptNorm = std::function<bool(double)>;

class TrainingStep {
 public:
  virtual ~TrainingStep() = default;

  // Adds the time of every phase of the coming steps to `times`, waiting for the device between them; nullptr ends
  // that. A step that has no phases adds nothing.
  virtual void time_phases(StepTimes* times) = 0;

  // Batches and dropout are functions of `step`. An empty `accept` takes every update, and need not wait for the norm.
  virtual StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {}) = 0;
};

// Computes the gradients of a step, for every implementation of it.

// The batches of a step that this process computes, one for each of its forward passes. Where a micro-batch is divided,
// the weight of all of it stands in its first part, and 0 in the others.
std::vector<Batch> training_batches(const StepParts& parts, std::int64_t step);

// Parts that the step cuts each batch into, where it has as many rows: train.cpu_slices on the CPU.
std::int64_t slices_of_batch(const StepParts& parts);

// Batches of a step that this process computes.
std::int64_t batches_of_step(const StepParts& parts);

// Whether backward computes parts of a step again, which then add to the gradients by themselves.
bool computes_again(const ExperimentConfig& config);

// Sets the gradients to those of the mean loss over all targets of the batches, which it returns: each batch's loss is
// a sum, divided by the weight of all batches. With a loss scale the gradients are multiplied by it, the loss that is
// returned is not. With more slices than one, the result does not depend on
// the number of threads: each slice is computed by one thread, and their gradients are added in a fixed order.
torch::Tensor accumulate_gradients(const StepParts& parts, const std::vector<Batch>& batches, const StepPasses& passes,
                                   PhaseTimer& timer);

// Scales the gradients so that their norm, without the loss scale, is at most train.clip (0: leaves them); returns that
// norm before. Gradients that are not finite stay as they are.
torch::Tensor clip_gradients(const StepParts& parts);

// After the update: what the step returns. Adapts the loss scale.
StepResult finish_step(const StepParts& parts, torch::Tensor loss, torch::Tensor gradient_norm);

// A step through LibTorch's autograd.

// Accumulated batches give the gradient of their union.
class EagerTrainingStep : public TrainingStep {
 public:
  explicit EagerTrainingStep(const StepParts& parts)
      : parts_(parts), passes_(static_cast<std::uint64_t>(parts.config.train.seed), parts.device) {}
  StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {}) override;
  void time_phases(StepTimes* times) override { times_ = times; }

 private:
  StepParts parts_;
  StepPasses passes_;
  StepTimes* times_ = nullptr;
};

// A step that a device replays as one graph: the host starts one piece of work in place of hundreds.

// Batches, the learning rate and what it draws random numbers from are put in place before every replay; loss, norm and
// parameters come out of it. The first steps run as they are, which makes libraries take what they need; batches of
// another shape than the recorded ones, and steps whose gradient norm somebody must accept, always do. A recording that
// fails is reported once, and every step runs as it is.
class GraphTrainingStep : public TrainingStep {
 public:
  GraphTrainingStep(const StepParts& parts, std::unique_ptr<DeviceGraph> graph);
  StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {}) override;

  // A graph has no phases; measured steps run as they are.
  void time_phases(StepTimes* times) override;

  bool replays() const { return recorded_; }

 private:
  void put_in_place(const std::vector<Batch>& batches, std::int64_t step, double learning_rate);
  bool fit(const std::vector<Batch>& batches) const;
  void record();
  void compute();  // the step, from what is in place

  StepParts parts_;
  EagerTrainingStep eager_;
  std::unique_ptr<DeviceGraph> graph_;  // none after a failure
  std::vector<Batch> batches_;          // the recorded ones
  torch::Tensor learning_rate_;         // scalar on the device
  StepPasses passes_;
  StepResult result_;
  std::int64_t warm_steps_ = 0;
  bool recorded_ = false, measures_ = false;
};

// The fastest training step for a config and a device.
std::unique_ptr<TrainingStep> make_training_step(const StepParts& parts);

}  // namespace metaformer
