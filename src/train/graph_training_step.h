#pragma once
// A step that a device replays as one graph: the host starts one piece of work in place of hundreds.

#include <optional>

#include "train/device_graph.h"
#include "train/training_step.h"

namespace metaformer {

// Batches, the learning rate and what it draws random numbers from are put in place before every replay; loss, norm and
// parameters come out of it. The first steps run as they are, which makes libraries take what they need; batches of
// another shape than the recorded ones, and steps whose gradient norm somebody must accept, always do. A recording that
// fails is reported once, and every step runs as it is.
class GraphTrainingStep : public TrainingStep {
 public:
  GraphTrainingStep(const ExperimentConfig& config, const Task& task, SequenceModel& model, ParameterBuffer& parameters,
                    AdamW& optimizer, torch::Device device, std::unique_ptr<DeviceGraph> graph);
  StepResult run(std::int64_t step, double learning_rate, const AcceptNorm& accept = {}) override;

  // A graph has no phases; measured steps run as they are.
  void time_phases(StepTimes* times) override;

  bool replays() const { return recorded_; }

 private:
  void put_in_place(const std::vector<Batch>& batches, std::int64_t step, double learning_rate);
  bool fit(const std::vector<Batch>& batches) const;
  void record();
  void compute();  // the step, from what is in place

  const ExperimentConfig& config_;
  const Task& task_;
  SequenceModel& model_;
  ParameterBuffer& parameters_;
  AdamW& optimizer_;
  torch::Device device_;
  EagerTrainingStep eager_;
  std::unique_ptr<DeviceGraph> graph_;  // none after a failure
  std::vector<Batch> batches_;          // the recorded ones
  torch::Tensor learning_rate_;         // scalar on the device
  StepResult result_;
  std::int64_t warm_steps_ = 0;
  bool recorded_ = false, measures_ = false;
};

// The fastest step that this config and device have.
std::unique_ptr<TrainingStep> make_training_step(const ExperimentConfig& config, const Task& task, SequenceModel& model,
                                                 ParameterBuffer& parameters, AdamW& optimizer, torch::Device device);

}  // namespace metaformer
