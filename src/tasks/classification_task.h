#pragma once
// Finding the class of a text: measures and recalibration.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "config/data_config.h"
#include "config/experiment_config.h"
#include "data/labelled.h"
#include "model/classifier.h"
#include "tasks/task.h"

namespace metaformer {

// Row-major [texts, classes], finite; every row sums to 1. labels: class ids, one per text.
struct ClassProbabilities {
  std::int64_t classes = 0;
  std::vector<double> values;
  std::vector<std::int64_t> labels;

  std::int64_t texts() const { return static_cast<std::int64_t>(labels.size()); }
  double at(std::int64_t text, std::int64_t label) const {
    return values[static_cast<std::size_t>(text * classes + label)];
  }
  std::int64_t label(std::int64_t text) const { return labels[static_cast<std::size_t>(text)]; }
  std::int64_t predicted(std::int64_t text) const;  // the most probable class; the first of equal ones
};

// float64 probabilities and the classes.
ClassProbabilities to_probabilities(const torch::Tensor& probabilities_lv, const torch::Tensor& labels_l);

// softmax(logits / temperature) in float64, and the classes.
ClassProbabilities class_probabilities(const torch::Tensor& logits_lv, const torch::Tensor& labels_l,
                                       double temperature = 1);

// Mean of -log(probability of the true class).
double log_loss(const ClassProbabilities& probabilities);

// The number of texts by [true class][predicted class], row-major.
std::vector<std::int64_t> confusion_table(const ClassProbabilities& probabilities);

std::vector<ClassCounts> count_classes(const ClassProbabilities& probabilities);

// The mean over the classes that have an F1; other classes do not count (scikit-learn's f1_score, average="macro").
double macro_f1(const std::vector<ClassCounts>& counts);

// Area under the receiver operating characteristic curve: the probability that a text of a class ranks above one of
// another, where ties count half (Hanley and McNeil 1982). With more than two classes, the mean of one against the rest
// over the classes that some but not all texts have; other classes do not count. nullopt if there is no such class.
std::optional<double> roc_auc(const ClassProbabilities& probabilities);

// The bin of a confidence, the probability of the predicted class, among equal ones from 0 to 1.
constexpr std::size_t confidence_bins = 15;
std::size_t confidence_bin(double confidence);

// Expected calibration error (Naeini et al. 2015, Guo et al. 2017): the mean distance of confidence and accuracy over
// the bins of confidence, weighted by their fractions of the texts.
double calibration_error(const ClassProbabilities& probabilities);

// task.head.recalibrate: a classifier is trained on noisy texts and with dropout, and evaluated without. Its logits
// then have an offset that differs from run to run, so that one class is predicted more often than it occurs.
//
// The shift s_v for which the mean of softmax(logits_bv + s_v) equals the mean of targets_bv, whose rows sum to 1, both
// weighted by weights_b: the minimum of the cross-entropy over a bias. Computed by iterative scaling (Darroch and
// Ratcliff 1972) in float64. 0 for classes that no target names.
torch::Tensor calibrating_shift(const torch::Tensor& logits_bv, const torch::Tensor& targets_bv,
                                const torch::Tensor& weights_b);

// `rows` texts of the training split from number `first` on, in a random order, without noise.
using TrainingTexts = std::function<Batch(std::int64_t first, std::int64_t rows)>;

// Sets the shift of the model's logits to the minimum of the training loss (with its smoothing, and weights_v by class
// unless undefined) over 4,096 different training texts, or all `count` of them if there are fewer, without noise and
// dropout. The texts are the same every time. A network that diverged gets no shift. Continues when a signal asks to
// stop: the checkpoint that is then saved needs the shift.
void recalibrate(Classifier& model, const TrainingTexts& texts, std::int64_t count, const ExperimentConfig& config,
                 const torch::Tensor& weights_v, torch::Device device);

// With more classes, single classes are not reported, or there is no confusion table.
constexpr std::size_t most_reported_classes = 20, most_confused_classes = 5000;

// Reports loss (neither smoothed nor weighted), accuracy, f1 (macro_f1), auc (roc_auc), calibration_error, texts; the
// counts of up to most_reported_classes, or of all with the confusion table of up to most_confused_classes.
class ClassificationMeasures : public Measures {
 public:
  ClassificationMeasures(std::shared_ptr<const LabelledDataset> dataset, SelectionMetric selection);

  void score(const torch::Tensor& logits_lv, const Batch& batch, ScoreSums& sums) const override;
  Evaluation report(const ScoreSums& sums, Split split, Tables tables = Tables::few) const override;

  // The same for probabilities from elsewhere (an ensemble), with their mean loss.
  Evaluation report_of(const ClassProbabilities& probabilities, double loss, Tables tables) const;

  // The confusion table as CSV: a row for each class, a column for each predicted one, both with its label.
  std::string confusion_csv(const ScoreSums& sums) const;

  // By the measure of the config. A missing AUC, of batches with a single class, counts as 0.
  double selection_error(const Evaluation& evaluation) const override;
  std::vector<std::string> headline() const override;

  const std::vector<std::string>& labels() const { return dataset_->codec().labels; }

  // A digest of the texts of a split, in the order of the source.
  const std::string& text_digest(Split split) const { return dataset_->text_digest(split); }

  // The probabilities, by logits that `score` gathered over all evaluation batches of a split and a temperature, with
  // the texts in the order of the source.
  ClassProbabilities probabilities_of(const ScoreSums& sums, Split split, double temperature = 1) const;

 private:
  std::shared_ptr<const LabelledDataset> dataset_;
  SelectionMetric selection_;
};

Task make_classification_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
