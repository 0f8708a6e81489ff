#include <cmath>

#include "base/random.h"
#include "support/catch.h"
#include "tasks/class_probabilities.h"

namespace metaformer {

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

// By its definition: over all pairs of a member and another.
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

}  // namespace

TEST_CASE("the area under the curve is the share of pairs ranked rightly", "[metrics]") {
  const auto two = random_probabilities(60, 2, 1);
  CHECK(std::abs(*roc_auc(two) - auc_by_pairs(two, 1)) < 1e-12);
  const auto four = random_probabilities(60, 4, 2);
  double mean = 0;
  for (std::int64_t label = 0; label < 4; ++label) mean += auc_by_pairs(four, label) / 4;
  CHECK(std::abs(*roc_auc(four) - mean) < 1e-12);
}

TEST_CASE("a class that a split does not have ranks nothing", "[metrics]") {
  CHECK_FALSE(roc_auc({.classes = 2, .values = {0.5, 0.5, 0.2, 0.8}, .labels = {1, 1}}).has_value());
  // Of three classes one has no text: the mean is over the other two, both ranked rightly.
  CHECK(*roc_auc({.classes = 3, .values = {0.9, 0.1, 0, 0.2, 0.8, 0}, .labels = {0, 1}}) == 1);
}

TEST_CASE("confusion and F1 by hand", "[metrics]") {
  // true 0: predicted 0, 0, 1; true 1: predicted 1; true 2: predicted 0
  const ClassProbabilities p{
      .classes = 3, .values = {.6, .3, .1, .5, .5, 0, .2, .7, .1, .1, .8, .1, .9, .1, 0}, .labels = {0, 0, 0, 1, 2}};
  const auto table = confusion_table(p);
  CHECK(table == std::vector<std::int64_t>{2, 1, 0, 0, 1, 0, 1, 0, 0});
  CHECK(std::abs(f1_score(table, 3, 0) - 2.0 / 3) < 1e-15);  // precision 2/3, recall 2/3
  CHECK(std::abs(f1_score(table, 3, 1) - 2.0 / 3) < 1e-15);  // precision 1/2, recall 1
  CHECK(f1_score(table, 3, 2) == 0);
}

TEST_CASE("calibration error is the mean distance of confidence and accuracy over bins", "[metrics]") {
  // One bin at 0.8 (right 1 of 2), one at 1 (right).
  const ClassProbabilities p{.classes = 2, .values = {.2, .8, .2, .8, 1, 0}, .labels = {1, 0, 0}};
  CHECK(std::abs(calibration_error(p) - 2.0 / 3 * 0.3) < 1e-12);
  // Right as often as sure.
  const ClassProbabilities sure{
      .classes = 2, .values = {.25, .75, .25, .75, .25, .75, .25, .75}, .labels = {1, 1, 1, 0}};
  CHECK(std::abs(calibration_error(sure)) < 1e-12);
}

}  // namespace metaformer
