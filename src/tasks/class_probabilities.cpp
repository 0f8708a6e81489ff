#include "tasks/class_probabilities.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace metaformer {

namespace {

// The rank sum of Mann and Whitney, ties sharing their ranks.
std::optional<double> auc_of_class(const ClassProbabilities& probabilities, std::int64_t label) {
  std::vector<std::pair<double, bool>> texts;  // score, is a member
  for (std::int64_t text = 0; text < probabilities.texts(); ++text)
    texts.emplace_back(probabilities.at(text, label), probabilities.label(text) == label);
  std::sort(texts.begin(), texts.end());
  double rank_sum = 0, members = 0;
  for (std::size_t first = 0; first < texts.size();) {
    auto last = first;
    while (last < texts.size() && texts[last].first == texts[first].first) ++last;
    const double shared_rank = static_cast<double>(first + 1 + last) / 2;
    for (; first < last; ++first) {
      if (!texts[first].second) continue;
      rank_sum += shared_rank;
      ++members;
    }
  }
  const double others = static_cast<double>(texts.size()) - members;
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
    sum -= std::log(probabilities.at(text, probabilities.label(text)));
  return sum / static_cast<double>(probabilities.texts());
}

std::vector<std::int64_t> confusion_table(const ClassProbabilities& probabilities) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(probabilities.classes * probabilities.classes));
  for (std::int64_t text = 0; text < probabilities.texts(); ++text) {
    ++table[static_cast<std::size_t>(probabilities.label(text) * probabilities.classes +
                                     probabilities.predicted(text))];
  }
  return table;
}

std::optional<double> ClassCounts::f1() const {
  if (texts + predicted == 0) return std::nullopt;
  return 2.0 * static_cast<double>(correct) / static_cast<double>(texts + predicted);  // multiplied out
}

std::vector<ClassCounts> count_classes(const ClassProbabilities& probabilities) {
  std::vector<ClassCounts> counts(static_cast<std::size_t>(probabilities.classes));
  for (std::int64_t text = 0; text < probabilities.texts(); ++text) {
    const auto label = static_cast<std::size_t>(probabilities.label(text)),
               predicted = static_cast<std::size_t>(probabilities.predicted(text));
    ++counts[label].texts;
    ++counts[predicted].predicted;
    if (label == predicted) ++counts[label].correct;
  }
  return counts;
}

double macro_f1(const std::vector<ClassCounts>& counts) {
  double sum = 0, present = 0;
  for (const auto& count : counts) {
    if (const auto f1 = count.f1()) {
      sum += *f1;
      ++present;
    }
  }
  return sum / present;  // a split has a text
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
    surplus[bin] += confidence - (predicted == probabilities.label(text) ? 1 : 0);
  }
  double error = 0;
  for (const double sum : surplus) error += std::abs(sum);
  return error / static_cast<double>(probabilities.texts());
}

}  // namespace metaformer
