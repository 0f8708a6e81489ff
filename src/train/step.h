#pragma once
// One optimiser step: forward, backward, clipping, update.

#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "config/schema.h"
#include "distributed/process_group.h"
#include "model/parameters.h"
#include "model/sequence_model.h"
#include "ops/autocast.h"
#include "ops/device.h"
#include "run/checkpoint.h"
#include "tasks/task.h"
#include "train/gradient_sum.h"
#include "train/optim/optimizer.h"

namespace metaformer {

// The memory of a recurrent or Transformer-XL model: one state for every pass of a step. A row continues the same row
// of the same pass of the step before.
class StepMemory {
 public:
  // States for the passes of this process: `slices` for each of its batches. Nothing for a model without memory.
  StepMemory(const SequenceModel& model, std::int64_t batches, std::int64_t slices, ProcessGroup& group);

  // nullptr: nothing.
  ModelState* of_pass(std::int64_t pass) const;

  void reset();

  // The states of all rows of a step, of all passes and processes, as a checkpoint keeps them. All processes must call
  // it.
  NamedTensors tensors() const;

  // Takes up what tensors() gave, and nothing else, out of `saved`, from which it is removed; passes and processes may
  // be others. Throws Error (exit code 2) for what is of another model, or not of the `rows` of a step; `source` names
  // the file.
  void take(NamedTensors& saved, std::int64_t rows, const std::string& source);

 private:
  NamedTensors join(const std::vector<NamedTensors>& parts) const;  // parts of rows, in their order
  // The rows that belong to one pass, out of those of a whole step.
  NamedTensors part_of(const NamedTensors& whole, std::size_t pass) const;

  std::vector<std::unique_ptr<ModelState>> passes_;
  std::int64_t batches_, slices_;
  ProcessGroup* group_;
};

// One of equal parts of a micro-batch's rows.
struct Piece {
  std::int64_t micro = 0, part = 0, parts = 1;
};

// Consecutive rows of the step for each of `size` processes: whole micro-batches as far as they can be divided, so that
// as many processes as micro-batches compute what one process does.
std::vector<Piece> pieces_of(int rank, int size, std::int64_t accumulate);

// Errors (exit code 2): the step's rows, or its batches of tokens, cannot be divided evenly.
void require_equal_pieces(const ExperimentConfig& config, int size);

// Phases of a training step. reduce: gradients of several processes are added up.
enum class StepPhase { batch, forward, backward, reduce, clip, update };
constexpr std::array<std::string_view, 6> enum_names(StepPhase) {
  return {"batch", "forward", "backward", "reduce", "clip", "update"};
}

struct StepTimes {
  std::array<double, enum_names(StepPhase{}).size()> seconds{};
  double of(StepPhase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  double total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
};

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

class PhaseTimer;
struct Slice;

// A model in training with all that a step changes: parameters, optimiser, loss scale, average, memory. Runs and
// benchmarks share it.
//
// On a CUDA device a step is replayed as one graph where it can be (train.cuda_graph): the host then starts one piece
// of work in place of hundreds. The first steps run eagerly, so that libraries take the memory they need; so do batches
// of another shape, steps whose gradient norm must be accepted, and steps whose phases are timed.
class Step {
 public:
  // With random weights. `config`, `task` and `group`, whose processes share the steps evenly (require_equal_pieces),
  // must outlive it.
  Step(const ExperimentConfig& config, const Task& task, torch::Device device, ProcessGroup& group = one_process());
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Batches and dropout are functions of `step`. An empty `accept` takes every update, and need not wait for the norm.
  // To be called by all processes.
  StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {});

  // Adds the time of every phase of the coming steps to `times`, waiting for the device between them; nullptr ends
  // that.
  void time_phases(StepTimes* times) { times_ = times; }

  // Records the coming steps in this graph.
  void replay_by(std::unique_ptr<DeviceGraph> graph) { graph_ = std::move(graph); }
  bool replays() const { return is_recorded_; }

  // The tensors that a checkpoint keeps beside the model, while the average is in use: those of the optimiser, the loss
  // scale, the weights in training where they are averaged, and the memory. They alias the state. All processes must
  // call it.
  NamedTensors state() const;

  // Goes on from a checkpoint. Errors: as copy_by_name.
  void restore(const Checkpoint& checkpoint);

  // Back to the state before the first step, with these values of the parameter buffer.
  void restart(const torch::Tensor& values);

  // The batches of a step that this process computes, one for each of its forward passes. The weight of a micro-batch
  // that is divided stands in its first part.
  std::vector<Batch> batches(std::int64_t step) const;

  // The batch's part of the mean loss of a step, whose batches weigh `weight` in all; `number` of the pass in the step.
  torch::Tensor batch_loss(const Batch& batch, const torch::Tensor& weight, Pass pass, std::int64_t number,
                           AutocastCasts casts = AutocastCasts::drop);

  // Sets the gradients to those of the mean loss over all targets of the batches of `step`, which it returns. With a
  // loss scale the gradients are multiplied by it, the loss that is returned is not.
  //
  // With train.cpu_slices each batch is cut into slices of rows, on which threads work side by side, each with
  // operators of one thread: for small operators this is faster than dividing each operator. The gradients of the
  // slices are kept, and added in their order, so that the result does not depend on the number of threads.
  torch::Tensor compute_gradients(std::int64_t step, const std::vector<Batch>& batches);
  torch::Tensor compute_gradients(std::int64_t step) { return compute_gradients(step, batches(step)); }

  // Scales the gradients so that their norm, without the loss scale, is at most train.clip (0: leaves them); returns
  // that norm before. Gradients that are not finite stay as they are.
  torch::Tensor clip_gradients();

  const ExperimentConfig& config() const { return config_; }
  torch::Device device() const { return device_; }
  ProcessGroup& group() const { return group_; }
  double learning_rate() const { return learning_rate_; }  // of the last step

  std::shared_ptr<SequenceModel> model;
  std::unique_ptr<ParameterBuffer> parameters;
  std::unique_ptr<LossScale> loss_scale;  // of fp16 only
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<WeightAverage> average;
  std::unique_ptr<StepMemory> memory;

 private:
  void make_graph();
  std::int64_t slices() const { return device_.is_cpu() ? config_.train.cpu_slices : 1; }
  std::vector<Piece> pieces() const { return pieces_of(group_.rank(), group_.size(), config_.train.accumulate); }

  torch::Tensor loss_in_chunks(const Batch& batch, const torch::Tensor& hidden) const;
  torch::Tensor scaled(const torch::Tensor& loss) const;  // with a loss scale the loss times that
  torch::Tensor accumulate_gradients(const std::vector<Batch>& batches, PhaseTimer& timer);
  torch::Tensor add_gradients(const Batch& batch, const torch::Tensor& weight, std::int64_t number, PhaseTimer& timer);
  torch::Tensor add_gradients_of_slices(const Batch& batch, const torch::Tensor& weight, std::int64_t first_number,
                                        PhaseTimer& timer);
  void compute_slice(const std::vector<torch::Tensor>& trained, const torch::Tensor& weight, bool has_faults,
                     Slice& slice);
  StepResult finish(torch::Tensor loss, torch::Tensor gradient_norm);
  StepResult run_eagerly(std::int64_t step, const AcceptNorm& accept);
  void record();

  const ExperimentConfig& config_;
  const Task& task_;
  torch::Device device_;
  ProcessGroup& group_;
  const std::vector<Shard>* shards_ =
      nullptr;  // the parts of all ranks, each of which needs only its own gradients; null: all need all
  std::unique_ptr<GradientSum> gradient_sum_;  // of several processes
  StepPasses passes_;
  StepTimes* times_ = nullptr;
  double learning_rate_ = 0;

  // The recorded step: batches, the learning rate and the keys of dropout are written before every replay; loss, norm
  // and parameters come out of it.
  std::unique_ptr<DeviceGraph> graph_;  // none: all steps run eagerly
  std::vector<Batch> recorded_batches_;
  torch::Tensor recorded_rate_;  // scalar on the device
  StepResult recorded_result_;
  std::int64_t warm_steps_ = 0;
  bool is_recorded_ = false;
};

}  // namespace metaformer
