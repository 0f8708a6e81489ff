#pragma once
// What is learned. The trainer knows tasks, not models or corpora.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/experiment_config.h"
#include "data/token_rows.h"
#include "model/sequence_model.h"
#include "tasks/score_sums.h"
#include "text/codec.h"

namespace metaformer {

// A loss summed over its targets, and how many there were: what batches and processes can add up.
struct LossSum {
  torch::Tensor sum;  // scalar on the device, at least float32
  double weight = 0;
};

class Task {
 public:
  virtual ~Task() = default;

  virtual std::shared_ptr<SequenceModel> make_model() const = 0;
  virtual const Codec& codec() const = 0;
  virtual double tokens_per_step() const = 0;  // on average; padding is none

  // The fraction of the training split that a step sees; 0 where epochs have no meaning.
  virtual double epochs_per_step() const { return 0; }

  // What a model with its initial weights takes from the training data at once.
  virtual void prepare(SequenceModel& model) const { (void)model; }

  // Forward pass `micro` (0 ... accumulate - 1) of a step: a function of (seed, step, micro) alone.
  virtual Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const = 0;
  virtual LossSum loss(SequenceModel& model, const Batch& batch) const = 0;

  virtual bool has(Split split) const { return split != Split::test; }

  // What a model that was trained on takes from the training data before it is evaluated.
  virtual void before_evaluation(SequenceModel& model, torch::Device device) const { (void)model, (void)device; }

  // A split in deterministic batches that hold every target once. Errors (exit code 2): the data has no such split.
  virtual std::int64_t evaluation_batches(Split split) const = 0;
  virtual Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const = 0;

  // Random batches of training size, the same at every call (nanoGPT's estimate_loss).
  virtual Batch random_batch(Split split, std::int64_t index, torch::Device device) const = 0;

  virtual void score(SequenceModel& model, const Batch& batch, ScoreSums& sums) const = 0;

  // The metrics that apply: loss, perplexity, accuracy, ...
  virtual nlohmann::ordered_json metrics(const ScoreSums& sums, Split split) const = 0;

  // Before training: warns of what looks like a slip; throws (exit code 3) where nothing could be chosen on the
  // validation split.
  virtual void check_data() const {}

  // The best checkpoint has the lowest of these on the validation split.
  virtual double selection_error(const nlohmann::ordered_json& metrics) const { return metrics.at("loss"); }

  // Besides the loss, the metrics that people look at first, shares all of them: "accuracy", "exact_match", ...
  virtual std::vector<std::string> headline() const { return {}; }

  // For environment.json: where the data came from and what it hashes to.
  virtual nlohmann::ordered_json data_description() const = 0;

  // The same in a line for people.
  virtual std::string data_summary() const = 0;
};

}  // namespace metaformer
