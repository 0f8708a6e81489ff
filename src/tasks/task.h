#pragma once
// A task, composed of its parts.

#include <torch/types.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/token_rows.h"
#include "model/batch.h"
#include "model/sequence_model.h"
#include "tasks/measures.h"
#include "text/tokenizer.h"

namespace metaformer {

class ClassificationMeasures;
class PairDataset;

// The results of an evaluation by name: a scalar or rows for every batch.
class ScoreSums {
 public:
  void add(const std::string& name, const torch::Tensor& of_batch) { of_batches_[name].push_back(of_batch); }

  // Adds the results of later batches.
  void add(const ScoreSums& later) {
    for (const auto& [name, tensors] : later.of_batches_)
      for (const auto& tensor : tensors) add(name, tensor);
  }

  // The sum of scalars, in float64 so that the order of batches hardly matters.
  double item(const std::string& name) const {
    auto sum = torch::zeros({}, of_batches_.at(name).front().options().dtype(torch::kDouble));
    for (const auto& scalar : of_batches_.at(name)) sum += scalar;
    return sum.item<double>();
  }

  // The rows of all batches.
  torch::Tensor joined(const std::string& name) const { return torch::cat(of_batches_.at(name)); }

  const std::map<std::string, std::vector<torch::Tensor>>& of_batches() const { return of_batches_; }

 private:
  std::map<std::string, std::vector<torch::Tensor>> of_batches_;
};

// few: counts by class, if there are at most most_reported_classes, as logged at every evaluation; all: counts of every
// class, and the confusion table.
enum class Tables { few, all };

// The measures that a task reports.
class Measures {
 public:
  virtual ~Measures() = default;

  // Adds a model's logits for a batch.
  virtual void score(const torch::Tensor& logits, const Batch& batch, ScoreSums& sums) const = 0;

  // Loss, perplexity, accuracy, ..., as far as they apply. `split`: of the data (BatchStream::source_of).
  virtual Evaluation report(const ScoreSums& sums, Split split, Tables tables = Tables::few) const = 0;

  // The best checkpoint has the lowest selection error on the validation split.
  virtual double selection_error(const Evaluation& evaluation) const { return evaluation.at("loss"); }

  // The main measures besides the loss, all of them fractions: "accuracy", "exact_match", ...
  virtual std::vector<std::string> headline() const { return {}; }
};

// Computes logits: a network (tasks/evaluation.h) or the linear baseline (tasks/linear_classifier.h).
class Predictor {
 public:
  virtual ~Predictor() = default;

  // Logits of a batch on the predictor's device, without noise: [b, c, v] of a language model, or [t, v] of the places
  // that the batch names; [l, classes] of a classifier, whose softmax are the probabilities of the classes.
  virtual torch::Tensor logits(const Batch& batch) const = 0;

  // Whether a batch continues the previous one, so that batches must come in their order.
  virtual bool remembers() const { return false; }
};

// The loss of a model's logits for a batch, summed over its targets: a scalar on the device, at least float32. Sums and
// batch.weight can be added up over batches and processes.
using Objective = std::function<torch::Tensor(const torch::Tensor& logits, const Batch& batch)>;

// The batches that a task reads.
class BatchStream {
 public:
  virtual ~BatchStream() = default;

  virtual double tokens_per_step() const = 0;  // on average; padding does not count

  // The fraction of the training split that a step sees; 0 where epochs have no meaning.
  virtual double epochs_per_step() const { return 0; }

  // To be called before training. Throws Error (exit code 3) if the training split is too short for a step.
  virtual void check_training() const {}

  // The batch of forward pass `micro` (0 ... accumulate - 1) of a step: a function of (seed, step, micro) only.
  virtual Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const = 0;

  virtual bool has(Split split) const { return split != Split::test; }

  // The split of the data from which the batches of `split` come.
  virtual Split source_of(Split split) const { return split; }

  // A split in deterministic batches that hold every target once. Throws Error (exit code 2) if the data has no such
  // split.
  virtual std::int64_t evaluation_batches(Split split) const = 0;
  virtual Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const = 0;

  // Tokens of such a batch, without padding.
  virtual std::int64_t evaluation_tokens(Split split, std::int64_t index) const = 0;

  // Random batches of training size, the same at every call (nanoGPT's estimate_loss).
  virtual Batch random_batch(Split split, std::int64_t index, torch::Device device) const = 0;
};

// train.overfit_batch: every step and evaluation sees the first step's batch. A network and an optimiser that work
// memorise it, so the loss must fall to nearly 0 (as far as the batch does not contradict itself).
class OneBatchStream : public BatchStream {
 public:
  OneBatchStream(std::shared_ptr<const BatchStream> whole, std::int64_t accumulate)
      : whole_(std::move(whole)), accumulate_(accumulate) {}

  double tokens_per_step() const override { return whole_->tokens_per_step(); }
  void check_training() const override { whole_->check_training(); }
  Batch training_batch(std::int64_t, std::int64_t micro, torch::Device device) const override {
    return whole_->training_batch(0, micro, device);
  }
  Split source_of(Split) const override { return Split::train; }
  std::int64_t evaluation_batches(Split) const override { return accumulate_; }
  Batch evaluation_batch(Split, std::int64_t index, torch::Device device) const override {
    return whole_->training_batch(0, index, device);
  }
  std::int64_t evaluation_tokens(Split, std::int64_t) const override {
    return std::llround(tokens_per_step() / static_cast<double>(accumulate_));
  }
  Batch random_batch(Split, std::int64_t index, torch::Device device) const override {
    return whole_->training_batch(0, index % accumulate_, device);
  }

 private:
  std::shared_ptr<const BatchStream> whole_;
  std::int64_t accumulate_;
};

// A task, composed of its parts. The trainer knows these interfaces, not corpora or models.
struct Task {
  std::shared_ptr<const Codec> codec;
  nlohmann::ordered_json description;  // of the data, for environment.json: where they came from, their digests
  std::string summary;                 // the same in a line for people
  std::optional<double> bytes_per_token = std::nullopt;  // of the training texts; nullopt for other data
  std::shared_ptr<const BatchStream> batches;
  Objective objective;  // the loss that the task minimises
  std::shared_ptr<const Measures> measures;

  // To be called before training: warns of probable mistakes; throws (exit code 3) if no checkpoint could be chosen on
  // the validation split.
  std::function<void()> check = [] {};

  // Adapt a model to the training data other than by gradients. before_training: with its initial weights.
  // before_evaluation: as a function of the weights that are about to be evaluated.
  std::function<void(SequenceModel& model)> before_training = [](SequenceModel&) {};
  std::function<void(SequenceModel& model, torch::Device device)> before_evaluation = [](SequenceModel&,
                                                                                         torch::Device) {};

  // nullptr for every task but one.
  std::shared_ptr<const ClassificationMeasures> classes = nullptr;  // of classification: `measures`
  std::shared_ptr<const PairDataset> pairs = nullptr;               // of sequence_to_sequence
};

}  // namespace metaformer
