#pragma once
// One optimiser step: forward, backward, clipping, update. The place where faster implementations go.

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "model/parameter_buffer.h"
#include "tasks/task.h"
#include "train/optimizer.h"

namespace metaformer {

// Scalars on the device, not read yet: reading waits for the device.
struct StepResult {
  torch::Tensor loss;           // mean over the step's targets
  torch::Tensor gradient_norm;  // before clipping
};

// Told the gradient norm before the update; false leaves the parameters as they are.
using AcceptNorm = std::function<bool(double)>;

enum class StepPhase { batch, forward, backward, clip, update };
template <>
struct EnumNames<StepPhase> {
  static constexpr std::array<std::string_view, 5> values = {"batch", "forward", "backward", "clip", "update"};
};

struct StepTimes {
  std::array<double, EnumNames<StepPhase>::values.size()> seconds{};
  double total() const;
};

class TrainingStep {
 public:
  virtual ~TrainingStep() = default;

  // Adds the time of every phase of the coming steps to `times`, waiting for the device between them; nullptr ends
  // that. A step that has no phases adds nothing.
  virtual void time_phases(StepTimes* times) = 0;

  // Batches and dropout are functions of `step`. An empty `accept` takes every update, and need not wait for the norm.
  virtual StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {}) = 0;
};

// Through LibTorch's autograd. Accumulated batches give the gradient of their union: each loss is a sum, divided by the
// weight of the whole step. Dropout draws from a stream that depends on (seed, step, batch) alone.
class EagerTrainingStep : public TrainingStep {
 public:
  EagerTrainingStep(const ExperimentConfig& config, const Task& task, SequenceModel& model, ParameterBuffer& parameters,
                    AdamW& optimizer, torch::Device device);
  StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {}) override;
  void time_phases(StepTimes* times) override { times_ = times; }

 private:
  torch::Tensor accumulate_gradients(std::int64_t step);
  void begin_phases();
  void end(StepPhase phase);

  const ExperimentConfig& config_;
  const Task& task_;
  SequenceModel& model_;
  ParameterBuffer& parameters_;
  AdamW& optimizer_;
  torch::Device device_;
  StepTimes* times_ = nullptr;
  std::chrono::steady_clock::time_point phase_start_;
};

// What every implementation is made of.

std::vector<Batch> training_batches(const Task& task, std::int64_t count, std::int64_t step, torch::Device device);
double weight_of(const std::vector<Batch>& batches);

// The batch's part of the mean loss of a step with that weight, its products in the given precision.
torch::Tensor batch_loss(Precision precision, const Task& task, SequenceModel& model, const Batch& batch, double weight,
                         torch::Device device);

// Scales the gradients so that their norm is at most `limit` (0: leaves them); returns the norm before. Not finite
// gradients stay as they are.
torch::Tensor clip_gradients(ParameterBuffer& parameters, double limit);

}  // namespace metaformer
