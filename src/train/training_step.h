#pragma once
// One optimiser step: forward, backward, clipping, update. The place where faster implementations go.

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "model/parameter_buffer.h"
#include "train/optimizer.h"
#include "train/task.h"

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

  // Adds the time of every phase of the coming steps to `times`, waiting for the device between them; nullptr ends that.
  // A step that has no phases adds nothing.
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
  torch::Tensor clip_gradients();
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

// The fastest step that this config and device have.
std::unique_ptr<TrainingStep> make_training_step(const ExperimentConfig& config, const Task& task, SequenceModel& model,
                                                 ParameterBuffer& parameters, AdamW& optimizer, torch::Device device);

}  // namespace metaformer
