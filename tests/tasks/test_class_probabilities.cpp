#include <cmath>

#include "base/random.h"
#include "support/torch_catch.h"
#include "tasks/classification_task.h"

namespace metaformer::test_class_probabilities {

namespace {

// Coarse probabilities, so that there are ties.
ClassProbabilities random_probabilities(std::int64_t texts, std::int64_t classes, std::uint64_t seed) {
  const Rng rng(seed, RandomPurpose::sampling);
  ClassProbabilities probabilities{.classes = classes, .values = {}, .labels = {}};
  for (std::int64_t text = 0; text < texts; ++text) {
    std::vector<double> row;
    double sum = 0;
    for (std::int64_t label = 0; label < classes; ++label) {
      row.push_back(1 + static_cast<double>(rng.below(static_cast<std::uint64_t>(text * classes + label), 5)));
      sum += row.back();
    }
    for (const double value : row) probabilities.values.push_back(value / sum);
    probabilities.labels.push_back(
        static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(text) << 32, classes)));
  }
  return probabilities;
}

// By the definition: over all pairs of a text of the class and another text.
double auc_by_pairs(const ClassProbabilities& p, std::int64_t label) {
  double won = 0, pairs = 0;
  for (std::int64_t a = 0; a < p.texts(); ++a)
    for (std::int64_t b = 0; b < p.texts(); ++b) {
      if (p.labels[static_cast<std::size_t>(a)] != label || p.labels[static_cast<std::size_t>(b)] == label) continue;
      ++pairs;
      const double member = p.at(a, label), other = p.at(b, label);
      won += member > other ? 1 : member == other ? 0.5 : 0;
    }
  return won / pairs;
}

// Scikit-learn's rule by its definition: precision, recall and their harmonic mean for the labels of
// unique_labels(y_true, y_pred), 0 where the denominator is 0, and the mean over these labels.
double macro_f1_by_definition(const ClassProbabilities& p) {
  double sum = 0, labels = 0;
  for (std::int64_t label = 0; label < p.classes; ++label) {
    double hits = 0, members = 0, predicted = 0;
    for (std::int64_t text = 0; text < p.texts(); ++text) {
      const bool is = p.labels[static_cast<std::size_t>(text)] == label, seems = p.predicted(text) == label;
      hits += is && seems;
      members += is;
      predicted += seems;
    }
    if (members + predicted == 0) continue;
    const double precision = predicted > 0 ? hits / predicted : 0, recall = members > 0 ? hits / members : 0;
    sum += precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
    ++labels;
  }
  return sum / labels;
}

}  // namespace

TEST_CASE("AUC is the fraction of correctly ranked pairs, averaged over classes that have texts", "[metrics]") {
  const std::int64_t classes = GENERATE(2, 4);
  const auto random = random_probabilities(60, classes, static_cast<std::uint64_t>(classes / 2));
  double expected = 0;  // for two classes that of the second, for more the mean
  for (std::int64_t label = 0; label < classes; ++label) expected += auc_by_pairs(random, label) / classes;
  if (classes == 2) expected = auc_by_pairs(random, 1);
  CHECK(std::abs(*roc_auc(random) - expected) < 1e-12);
  CHECK_FALSE(roc_auc({.classes = 2, .values = {0.5, 0.5, 0.2, 0.8}, .labels = {1, 1}}).has_value());
  // One of three classes has no text: the mean is over the other two, both ranked correctly.
  CHECK(*roc_auc({.classes = 3, .values = {0.9, 0.1, 0, 0.2, 0.8, 0}, .labels = {0, 1}}) == 1);
}

TEST_CASE("confusion and F1 equal values by hand and by definition, and absent classes do not affect the mean",
          "[metrics]") {
  // true 0: predicted 0, 0, 1; true 1: predicted 1; true 2: predicted 0
  const ClassProbabilities p{
      .classes = 3, .values = {.6, .3, .1, .5, .5, 0, .2, .7, .1, .1, .8, .1, .9, .1, 0}, .labels = {0, 0, 0, 1, 2}};
  CHECK(confusion_table(p) == std::vector<std::int64_t>{2, 1, 0, 0, 1, 0, 1, 0, 0});
  const auto counts = count_classes(p);
  for (const std::size_t label : {0, 1}) CHECK(std::abs(*counts[label].f1() - 2.0 / 3) < 1e-15);
  CHECK(*counts[2].f1() == 0);  // one text has this class, and none is predicted to have it
  CHECK(std::abs(macro_f1(counts) - 4.0 / 9) < 1e-15);
  // All predictions are right, and the third class is neither true nor predicted.
  const auto right = count_classes({.classes = 3, .values = {.8, .2, 0, .1, .9, 0, .3, .7, 0}, .labels = {0, 1, 1}});
  CHECK(macro_f1(right) == 1);
  CHECK_FALSE(right[2].f1().has_value());
  // A class that is only predicted counts, with 0: f1_score([0, 1, 1], [0, 1, 2], average="macro") is 0.5556.
  const ClassProbabilities wrong{.classes = 4, .values = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}, .labels = {0, 1, 1}};
  CHECK(std::abs(macro_f1(count_classes(wrong)) - (1 + 2.0 / 3 + 0) / 3) < 1e-15);
  const std::int64_t classes = GENERATE(2, 3, 7, 40), texts = GENERATE(1, 2, 5, 30);
  const auto random = random_probabilities(texts, classes, static_cast<std::uint64_t>(10 * classes + texts));
  CHECK(std::abs(macro_f1(count_classes(random)) - macro_f1_by_definition(random)) < 1e-14);
}

TEST_CASE("calibration error is the mean distance of confidence and accuracy over bins", "[metrics]") {
  // One bin at 0.8 (right 1 of 2), one at 1 (right).
  const ClassProbabilities p{.classes = 2, .values = {.2, .8, .2, .8, 1, 0}, .labels = {1, 0, 0}};
  CHECK(std::abs(calibration_error(p) - 2.0 / 3 * 0.3) < 1e-12);
  // Accuracy equals confidence.
  const ClassProbabilities sure{
      .classes = 2, .values = {.25, .75, .25, .75, .25, .75, .25, .75}, .labels = {1, 1, 1, 0}};
  CHECK(std::abs(calibration_error(sure)) < 1e-12);
}

}  // namespace metaformer::test_class_probabilities
