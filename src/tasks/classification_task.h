#pragma once
// The task of finding the class of a text.

#include <functional>
#include <memory>
#include <vector>

#include "config/experiment_config.h"
#include "model/classifier.h"
#include "model/sequence_model.h"
#include "tasks/task.h"

namespace metaformer {

// A network as a predictor.
class NetworkPredictor : public Predictor {
 public:
  // Keeps a reference to the model.
  explicit NetworkPredictor(SequenceModel& model) : model_(model) {}

  // On the CPU threads share slices of rows, so that what they compute stays in their caches. The slices, and so the
  // logits, do not depend on the number of threads. A model that remembers goes on where the batch before ended,
  // unless this one begins.
  torch::Tensor logits(const Batch& batch) const override;
  bool remembers() const override { return model_.remembers(); }

 private:
  torch::Tensor logits_of_slice(const Batch& slice, std::size_t number) const;

  SequenceModel& model_;
  // Of every slice of the rows; none for a model without memory.
  mutable std::vector<std::unique_ptr<ModelState>> states_;
};

// task.head.recalibrate. A classifier is trained on noisy texts and with dropout, and evaluated without. Its
// logits then have an offset that differs from run to run, so that one class is predicted more often than it occurs.

// The shift s_v for which the mean of softmax(logits_bv + s_v) is the mean of targets_bv, rows that sum to 1, both
// weighted by weights_b: cross-entropy's minimum in a bias. By iterative scaling (Darroch and Ratcliff 1972), float64.
// 0 for classes that the targets never name.
torch::Tensor calibrating_shift(const torch::Tensor& logits_bv, const torch::Tensor& targets_bv,
                                const torch::Tensor& weights_b);

// Texts `first` ... `first` + `rows` of the training split in an order at random, without noise.
using TrainingTexts = std::function<Batch(std::int64_t first, std::int64_t rows)>;

// Shifts the model's logits so that training's loss (its smoothing, and weights_v by class unless undefined), over
// 4,096 different training texts, or all `count` of them where there are fewer, without noise and dropout, is at its
// minimum in the shift. The same texts every time. A network that diverged gets no shift. Goes on when a signal asks to
// stop: the checkpoint that is then saved needs the shift.
void recalibrate(Classifier& model, const TrainingTexts& texts, std::int64_t count, const ExperimentConfig& config,
                 const torch::Tensor& weights_v, torch::Device device);

// Finding the class of a text.

// Its metrics are ClassificationMetrics. Its adaptation is for a Classifier (model/classifier.h).
Task make_classification_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
