#pragma once
// Classes of texts, from one classifier or several.

#include "infer/load_run.h"
#include "tasks/class_probabilities.h"

namespace metaformer {

// Classes of texts from a classifier.
struct Prediction {
  std::size_t label = 0;              // the likeliest class
  std::vector<double> probabilities;  // by class
};

// One prediction per text, in order, in the precision of the run; the last digits of a network's depend on the texts
// beside it. `texts`: token ids, none empty, none longer than model.context. Errors (exit code 4): a probability is not
// finite.
std::vector<Prediction> predict(const LoadedRun& run, const std::vector<std::vector<std::int32_t>>& texts);

// Several classifiers as one: the mean of their probabilities (Dietterich 2000, "Ensemble methods in machine
// learning").
class Ensemble {
 public:
  // Adds what the metrics gathered of a classifier on a split. Errors (exit code 2), naming the member as `name`: its
  // classes, or its texts and their labels, are not those of the first member.
  void add(const std::string& name, const ClassificationMetrics& metrics, const ScoreSums& sums, Split split);

  // Mean over the members, texts in the order of the source.
  ClassProbabilities mean() const;

 private:
  std::vector<std::string> classes_;
  std::string text_digest_;
  ClassProbabilities sum_;
  double members_ = 0;
};

}  // namespace metaformer
