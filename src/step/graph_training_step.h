#pragma once
// A step that a device replays as one graph: the host starts one piece of work in place of hundreds.

#include "ops/device_graph.h"
#include "step/eager_training_step.h"

namespace metaformer {

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

}  // namespace metaformer
