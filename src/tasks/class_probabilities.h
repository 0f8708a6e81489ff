#pragma once
// Measures of a classifier's probabilities, from all texts of a split at once.

#include <cstdint>
#include <optional>
#include <vector>

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
  std::int64_t predicted(std::int64_t text) const;  // the likeliest class, of equal ones the first
};

// Mean of -log(probability of the true class).
double log_loss(const ClassProbabilities& probabilities);

// [true class][predicted class], row-major: how many texts.
std::vector<std::int64_t> confusion_table(const ClassProbabilities& probabilities);

// How many texts have a class, how many are predicted to have it, and how many of these have it.
struct ClassCounts {
  std::int64_t texts = 0, predicted = 0, correct = 0;

  // 2 precision recall / (precision + recall). Nothing for a class that no text has and none is predicted to have.
  std::optional<double> f1() const;
};
std::vector<ClassCounts> count_classes(const ClassProbabilities& probabilities);

// The mean over the classes that have an F1; other classes do not count (scikit-learn's f1_score, average="macro").
double macro_f1(const std::vector<ClassCounts>& counts);

// Area under the receiver's operating curve: the probability that a text of a class ranks above one of another, half of
// it for ties (Hanley and McNeil 1982). Of more than two classes the mean of one against the rest over the classes that
// some but not all texts have; other classes do not count. Nothing where there is no such class.
std::optional<double> roc_auc(const ClassProbabilities& probabilities);

// Expected calibration error (Naeini et al. 2015, Guo et al. 2017): mean distance of confidence and accuracy over 15
// equal bins of confidence, by their shares of the texts.
double calibration_error(const ClassProbabilities& probabilities);

}  // namespace metaformer
