#pragma once
// Several classifiers as one: the mean of their probabilities (Dietterich 2000, "Ensemble methods in machine
// learning").

#include "tasks/classification_metrics.h"

namespace metaformer {

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
