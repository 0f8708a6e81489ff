#include "tasks/class_probabilities.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace metaformer {

namespace {

// The rank sum of Mann and Whitney, ties sharing their ranks.
std::optional<double> auc_of_class(const ClassProbabilities& probabilities, std::int64_t label) {
  std::vector<std::int64_t> order(probabilities.labels.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto score = [&](std::int64_t text) { return probabilities.at(text, label); };
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return score(a) < score(b); });
  double rank_sum = 0, members = 0;
  for (std::size_t first = 0; first < order.size();) {
    auto last = first;
    while (last < order.size() && score(order[last]) == score(order[first])) ++last;
    const double shared_rank = static_cast<double>(first + 1 + last) / 2;
    for (; first < last; ++first) {
      if (probabilities.labels[static_cast<std::size_t>(order[first])] != label) continue;
      rank_sum += shared_rank;
      ++members;
    }
  }
  const double others = static_cast<double>(order.size()) - members;
  if (members == 0 || others == 0) return std::nullopt;
  return (rank_sum - members * (members + 1) / 2) / (members * others);
}

}  // namespace

std::int64_t ClassProbabilities::predicted(std::int64_t text) const {
  const auto row = values.begin() + text * classes;
  return std::max_element(row, row + classes) - row;
}

double log_loss(const ClassProbabilities& probabilities) {
  double sum = 0;
  for (std::int64_t text = 0; text < probabilities.texts(); ++text)
    sum -= std::log(probabilities.at(text, probabilities.labels[static_cast<std::size_t>(text)]));
  return sum / static_cast<double>(probabilities.texts());
}

std::vector<std::int64_t> confusion_table(const ClassProbabilities& probabilities) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(probabilities.classes * probabilities.classes));
  for (std::int64_t text = 0; text < probabilities.texts(); ++text) {
    const auto label = probabilities.labels[static_cast<std::size_t>(text)];
    ++table[static_cast<std::size_t>(label * probabilities.classes + probabilities.predicted(text))];
  }
  return table;
}

double f1_score(const std::vector<std::int64_t>& confusion, std::int64_t classes, std::int64_t label) {
  const auto at = [&](std::int64_t truth, std::int64_t predicted) {
    return confusion[static_cast<std::size_t>(truth * classes + predicted)];
  };
  std::int64_t members = 0, predicted = 0;
  for (std::int64_t other = 0; other < classes; ++other) {
    members += at(label, other);
    predicted += at(other, label);
  }
  // Precision and recall multiplied out.
  return members + predicted == 0
             ? 0
             : 2.0 * static_cast<double>(at(label, label)) / static_cast<double>(members + predicted);
}

std::optional<double> roc_auc(const ClassProbabilities& probabilities) {
  if (probabilities.classes == 2) return auc_of_class(probabilities, 1);
  double sum = 0, counted = 0;
  for (std::int64_t label = 0; label < probabilities.classes; ++label) {
    if (const auto auc = auc_of_class(probabilities, label)) {
      sum += *auc;
      ++counted;
    }
  }
  return counted == 0 ? std::nullopt : std::optional(sum / counted);
}

double calibration_error(const ClassProbabilities& probabilities) {
  constexpr std::size_t bins = 15;
  std::array<double, bins> surplus{};  // confidence less correctness, summed
  for (std::int64_t text = 0; text < probabilities.texts(); ++text) {
    const auto predicted = probabilities.predicted(text);
    const double confidence = probabilities.at(text, predicted);
    const auto bin = std::min(bins - 1, static_cast<std::size_t>(std::floor(confidence * bins)));
    surplus[bin] += confidence - (predicted == probabilities.labels[static_cast<std::size_t>(text)] ? 1 : 0);
  }
  double error = 0;
  for (const double sum : surplus) error += std::abs(sum);
  return error / static_cast<double>(probabilities.texts());
}

}  // namespace metaformer
