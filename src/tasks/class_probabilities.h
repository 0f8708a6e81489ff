#pragma once
// What a classifier's probabilities are worth, from all texts of a split at once. No torch in it.

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
  std::int64_t predicted(std::int64_t text) const;  // the likeliest class, of equal ones the first
};

// Mean of -log(probability of the true class).
double log_loss(const ClassProbabilities& probabilities);

// [true class][predicted class], row-major: how many texts.
std::vector<std::int64_t> confusion_table(const ClassProbabilities& probabilities);

// 2 precision recall / (precision + recall) of a class of a confusion table; 0 where nothing of it was found.
double f1_score(const std::vector<std::int64_t>& confusion, std::int64_t classes, std::int64_t label);

// Area under the receiver's operating curve: the probability that a text of a class ranks above one of another, half of
// it for ties (Hanley and McNeil 1982). Of more than two classes the mean over one-against-the-rest. Nothing where no
// class has texts on both sides.
std::optional<double> roc_auc(const ClassProbabilities& probabilities);

// Expected calibration error (Naeini et al. 2015, Guo et al. 2017): mean distance of confidence and accuracy over 15
// equal bins of confidence, by their shares of the texts.
double calibration_error(const ClassProbabilities& probabilities);

}  // namespace metaformer
