#pragma once
// The loss of a batch, and the memory that steps carry on.

#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <vector>

#include "config/experiment_config.h"
#include "config/schema.h"
#include "distributed/process_group.h"
#include "model/parameters.h"
#include "model/sequence_model.h"
#include "ops/autocast.h"
#include "ops/device.h"
#include "tasks/task.h"
#include "train/optim/optimizer.h"
#include "train/step/gradient_sum.h"

namespace metaformer {

// The time of every phase of a training step.

// reduce: gradients of several processes are added up.
enum class StepPhase { batch, forward, backward, reduce, clip, update };
template <>
struct EnumNames<StepPhase> {
  static constexpr std::array<std::string_view, 6> values = {"batch",  "forward", "backward",
                                                             "reduce", "clip",    "update"};
};

struct StepTimes {
  std::array<double, EnumNames<StepPhase>::values.size()> seconds{};
  double of(StepPhase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  double total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
};

// Waits for the device between phases; without `times` does nothing.
class PhaseTimer {
 public:
  PhaseTimer(StepTimes* times, torch::Device device) : times_(times), device_(device) {
    if (times_ == nullptr) return;
    wait_for(device_);
    start_ = std::chrono::steady_clock::now();
  }

  // The phase that has run since the end of the one before.
  void end(StepPhase phase) {
    if (times_ == nullptr) return;
    wait_for(device_);
    const auto now = std::chrono::steady_clock::now();
    times_->seconds[static_cast<std::size_t>(phase)] += std::chrono::duration<double>(now - start_).count();
    start_ = now;
  }

  // Two phases that threads have run side by side since the end of the one before, with the first one's part of the
  // time.
  void end(StepPhase first, StepPhase second, double part_of_first) {
    if (times_ == nullptr) return;
    const auto before = times_->seconds[static_cast<std::size_t>(first)];
    end(first);
    auto& seconds = times_->seconds[static_cast<std::size_t>(first)];
    const auto taken = seconds - before;
    seconds = before + part_of_first * taken;
    times_->seconds[static_cast<std::size_t>(second)] += (1 - part_of_first) * taken;
  }

 private:
  StepTimes* times_;
  torch::Device device_;
  std::chrono::steady_clock::time_point start_;
};

// What a model that remembers carries from one step to the next: for every pass of a step, the rows of which go on
// where those of the same pass of the step before ended.
class StepMemory {
 public:
  // Of the passes that this process computes: `slices` for each of its batches. Of a model without memory: nothing.
  StepMemory(const SequenceModel& model, std::int64_t batches, std::int64_t slices, ProcessGroup& group);

  // nullptr: nothing.
  ModelState* of_pass(std::int64_t pass) const;

  void reset();

  // What a checkpoint keeps of it: of all rows of a step, whichever pass of whichever process they belong to. To be
  // called by all processes.
  NamedTensors tensors() const;

  // Takes up what tensors() gave, and nothing else, out of `saved`, from which it is removed; passes and processes may
  // be others. Throws Error (exit code 2) for what is of another model, or not of the `rows` of a step; `source` names
  // the file.
  void take(NamedTensors& saved, std::int64_t rows, const std::string& source);

 private:
  NamedTensors join(const std::vector<NamedTensors>& parts) const;  // parts of rows, in their order
  void require_rows(const NamedTensors& whole, std::int64_t rows, const std::string& source) const;
  // The rows that belong to one pass, out of those of a whole step.
  NamedTensors part_of(const NamedTensors& whole, std::size_t pass) const;

  std::vector<std::unique_ptr<ModelState>> passes_;
  std::int64_t batches_, slices_;
  ProcessGroup* group_;
};

// The loss of one batch of a step.

// The objects that a step works on; all of them must outlive it.
struct StepParts {
  const ExperimentConfig& config;
  const Task& task;
  SequenceModel& model;
  ParameterBuffer& parameters;
  Optimizer& optimizer;
  torch::Device device;
  LossScale* loss_scale = nullptr;       // whose gradients the optimiser takes; none: those of the loss itself
  const StepMemory* memory = nullptr;    // of a model with memory; none: nothing is remembered
  ProcessGroup* group = &one_process();  // that shares the step
  GradientSum* gradient_sum = nullptr;   // of several processes
  const std::vector<Shard>* shards =
      nullptr;  // of every rank, whose gradients only that rank needs; none: all need all
};

// The batch's part of the mean loss of a step, whose batches weigh `weight` in all. `number` of the pass among those of
// the step.
torch::Tensor batch_loss(const StepParts& parts, const Batch& batch, const torch::Tensor& weight, Pass pass,
                         std::int64_t number, AutocastCasts casts = AutocastCasts::drop);

// What the gradients are taken of: with a loss scale the loss times that.
torch::Tensor scaled(const StepParts& parts, const torch::Tensor& loss);

// For tests: NaN or infinite where the faults "nan" and "overflow" strike.
torch::Tensor with_faults(torch::Tensor loss);

}  // namespace metaformer
