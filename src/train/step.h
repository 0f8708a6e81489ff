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
#include "train/lora.h"
#include "train/optim/optimizer.h"

namespace metaformer {

// The memory of a recurrent or Transformer-XL model: one state for every pass of a step. A row continues the same row
// of the same pass of the previous step.
class StepMemory {
 public:
  // Makes states for the passes of this process: `slices` for each of its batches. A model without memory has none.
  StepMemory(const SequenceModel& model, std::int64_t batches, std::int64_t slices, ProcessGroup& group);

  // nullptr if the model has no memory.
  ModelState* of_pass(std::int64_t pass) const;

  void reset();

  // The states of all rows of a step, joined over passes and processes, for a checkpoint. All processes must call it.
  NamedTensors tensors() const;

  // Loads the tensors of tensors() from `saved`, and removes them from it; the numbers of passes and processes may have
  // changed. Throws Error (exit code 2) for tensors of another model, or of another number of rows than the `rows` of a
  // step; `source` names the file.
  void take(NamedTensors& saved, std::int64_t rows, const std::string& source);

 private:
  NamedTensors join(const std::vector<NamedTensors>& parts) const;  // joins their rows in order
  // The rows of one pass, from the tensors of a whole step.
  NamedTensors part_of(const NamedTensors& whole, std::size_t pass) const;

  std::vector<std::unique_ptr<ModelState>> passes_;
  std::int64_t batches_, slices_;
  ProcessGroup* group_;
};

// Part `part` of the rows of micro-batch `micro`, which are divided into `parts` equal parts.
struct Piece {
  std::int64_t micro = 0, part = 0, parts = 1;
};

// The rows of a step that process `rank` of `size` processes computes. They are consecutive, and whole micro-batches if
// possible, so that as many processes as micro-batches give the result of one process.
std::vector<Piece> pieces_of(int rank, int size, std::int64_t accumulate);

// Errors (exit code 2): the step's rows, or its batches of tokens, cannot be divided evenly.
void require_equal_pieces(const ExperimentConfig& config, int size);

// Phases of a training step. reduce: gradients of several processes are summed.
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
  // Booleans, undefined without a loss scale. skipped: the gradients were not finite, so nothing was updated;
  // exhausted: even the smallest scale was too large.
  torch::Tensor skipped, exhausted;
};

// Receives the gradient norm before the update; false leaves the parameters as they are.
using AcceptNorm = std::function<bool(double)>;

class PhaseTimer;
struct Slice;

// A model in training, with everything that a step changes: parameters, optimiser, loss scale, average, memory. Runs
// and benchmarks share it.
//
// On a CUDA device a step is replayed as one CUDA graph if possible (train.cuda_graph): the host then launches one
// graph instead of hundreds of kernels. The first steps run eagerly, so that libraries allocate their memory and NCCL
// connects the processes, whose sums are part of the graph; so do batches of another shape, steps whose gradient norm
// must be accepted, and steps whose phases are timed.
class Step {
 public:
  // Starts with random weights. `config`, `task` and `group` must outlive it; the processes of `group` share the steps
  // evenly (require_equal_pieces).
  Step(const ExperimentConfig& config, const Task& task, torch::Device device, ProcessGroup& group = one_process());
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Batches and dropout are functions of `step`. An empty `accept` accepts every update, without waiting for the norm.
  // All processes must call it.
  StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {});

  // Adds the time of every phase of the coming steps to `times`, waiting for the device between phases; nullptr stops
  // this.
  void time_phases(StepTimes* times) { times_ = times; }

  // Records the coming steps in this graph.
  void replay_by(std::unique_ptr<DeviceGraph> graph) { graph_ = std::move(graph); }
  bool replays() const { return is_recorded_; }

  // To be called before the first step if the model's weights have been replaced.
  void start_from_model();

  // The tensors that a checkpoint keeps besides the model: those of the optimiser, the loss scale, the adapters and the
  // memory, and with an average the weights in training. To be called during a WeightAverage::Use. They alias the
  // state. All processes must call it.
  NamedTensors state() const;

  // Restores a checkpoint. Errors: as copy_by_name.
  void restore(const Checkpoint& checkpoint);

  // Restores the state before the first step, with these values of the parameter buffer.
  void restart(const torch::Tensor& values);

  // The batches of a step that this process computes, one for each of its forward passes. If a micro-batch is divided,
  // its first part has its whole weight.
  std::vector<Batch> batches(std::int64_t step) const;

  // The batch's part of the mean loss of a step whose batches have the total weight `weight`. `number`: of the pass
  // within the step.
  torch::Tensor batch_loss(const Batch& batch, const torch::Tensor& weight, Pass pass, std::int64_t number,
                           AutocastCasts casts = AutocastCasts::drop);

  // Computes the gradients of the mean loss over all targets of the batches of `step`, and returns the loss. With a
  // loss scale, the gradients are multiplied by it, but the returned loss is not.
  //
  // With train.cpu_slices each batch is cut into slices of rows. Each slice is computed by one thread, which for small
  // operators is faster than dividing each operator among threads. The gradients of the slices are kept, and added in
  // their order, so that the result does not depend on the number of threads.
  torch::Tensor compute_gradients(std::int64_t step, const std::vector<Batch>& batches);
  torch::Tensor compute_gradients(std::int64_t step) { return compute_gradients(step, batches(step)); }

  // Scales the gradients so that their norm, without the loss scale, is at most train.clip (0: no clipping). Returns
  // the norm before clipping. Gradients that are not finite do not change. If the optimiser clips (clips_in_update),
  // the gradients stay as they are, and the next update scales them.
  torch::Tensor clip_gradients();

  const ExperimentConfig& config() const { return config_; }
  torch::Device device() const { return device_; }
  ProcessGroup& group() const { return group_; }
  double learning_rate() const { return learning_rate_; }  // of the last step

  std::shared_ptr<SequenceModel> model;
  std::unique_ptr<ParameterBuffer> parameters;  // of the model, and those of its adapters
  std::unique_ptr<Lora> lora;                   // null: no adapters
  std::unique_ptr<LossScale> loss_scale;        // of fp16 only
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<WeightAverage> average;
  std::unique_ptr<StepMemory> memory;

 private:
  void make_graph();
  std::int64_t slices() const { return device_.is_cpu() ? config_.train.cpu_slices : 1; }
  std::vector<Piece> pieces() const { return pieces_of(group_.rank(), group_.size(), config_.train.accumulate); }

  torch::Tensor loss_in_chunks(const Batch& batch, const torch::Tensor& hidden) const;
  torch::Tensor gradient_of_sum(const torch::Tensor& weight) const;  // with respect to a batch's sum of losses
  torch::Tensor clip_by_kernel();
  torch::Tensor scaled(const torch::Tensor& loss) const;  // times the loss scale, if there is one
  torch::Tensor accumulate_gradients(const std::vector<Batch>& batches, PhaseTimer& timer);
  torch::Tensor add_gradients(const Batch& batch, const torch::Tensor& weight, std::int64_t number, PhaseTimer& timer);
  torch::Tensor add_gradients_of_slices(const Batch& batch, const torch::Tensor& weight, std::int64_t first_number,
                                        PhaseTimer& timer);
  void compute_slice(const std::vector<torch::Tensor>& trained, const torch::Tensor& weight, bool has_faults,
                     Slice& slice);
  void refresh_half();
  void update(const LearningRate& learning_rate);
  StepResult finish(torch::Tensor loss, torch::Tensor gradient_norm);
  StepResult run_eagerly(std::int64_t step, const AcceptNorm& accept);
  std::string record_own();
  void record();

  const ExperimentConfig& config_;
  const Task& task_;
  torch::Device device_;
  ProcessGroup& group_;
  const std::vector<Shard>* shards_ = nullptr;  // each rank needs only its own gradients; null: each needs all
  std::unique_ptr<GradientSum> gradient_sum_;   // of several processes
  torch::Tensor clip_factor_;                   // of the gradients, for an optimiser that clips; else undefined
  StepPasses passes_;
  StepTimes* times_ = nullptr;
  double learning_rate_ = 0;

  // The recorded step: batches, the learning rate and the keys of dropout are written before every replay; loss, norm
  // and parameters are its results.
  std::unique_ptr<DeviceGraph> graph_;  // null: all steps run eagerly
  std::vector<Batch> recorded_batches_;
  torch::Tensor recorded_rate_;  // scalar on the device
  StepResult recorded_result_;
  std::int64_t warm_steps_ = 0;
  bool is_recorded_ = false;
};

}  // namespace metaformer
