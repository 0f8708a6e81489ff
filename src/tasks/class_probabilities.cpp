#include "tasks/class_probabilities.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/rows.h"
#include "tasks/batches.h"

namespace metaformer {

namespace {

// The rank sum of Mann and Whitney, ties sharing their ranks.
std::optional<double> auc_of_class(const ClassProbabilities& probabilities, std::int64_t label) {
  std::vector<std::pair<double, bool>> texts;  // score, is a member
  for (std::int64_t text = 0; text < probabilities.texts(); ++text)
    texts.emplace_back(probabilities.at(text, label), probabilities.labels[static_cast<std::size_t>(text)] == label);
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

std::optional<double> ClassCounts::f1() const {
  if (texts + predicted == 0) return std::nullopt;
  return 2.0 * static_cast<double>(correct) / static_cast<double>(texts + predicted);  // multiplied out
}

std::vector<ClassCounts> count_classes(const ClassProbabilities& probabilities) {
  std::vector<ClassCounts> counts(static_cast<std::size_t>(probabilities.classes));
  for (std::int64_t text = 0; text < probabilities.texts(); ++text) {
    const auto label = static_cast<std::size_t>(probabilities.labels[static_cast<std::size_t>(text)]),
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
    surplus[bin] += confidence - (predicted == probabilities.labels[static_cast<std::size_t>(text)] ? 1 : 0);
  }
  double error = 0;
  for (const double sum : surplus) error += std::abs(sum);
  return error / static_cast<double>(probabilities.texts());
}

namespace {

using Json = nlohmann::ordered_json;

ClassProbabilities to_probabilities(const torch::Tensor& given_lv, const torch::Tensor& given_l) {
  const auto probabilities_lv = given_lv.to(torch::kCPU, torch::kDouble).contiguous();
  const auto labels_l = given_l.to(torch::kCPU).contiguous();
  const auto* values = probabilities_lv.data_ptr<double>();
  const auto* labels = labels_l.data_ptr<std::int64_t>();
  return {.classes = probabilities_lv.size(1),
          .values = {values, values + probabilities_lv.numel()},
          .labels = {labels, labels + labels_l.numel()}};
}

ClassProbabilities to_probabilities(const ScoreSums& sums) {
  return to_probabilities(sums.joined("probabilities"), sums.joined("labels"));
}

// Labels are distinct: an ordered object would look through all of them at every insertion.
void append(Json& object, const std::string& name, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(name, std::move(value));
}

Json describe_classes(const std::vector<ClassCounts>& counts, const std::vector<std::string>& names) {
  auto classes = Json::object();
  for (std::size_t label = 0; label < names.size(); ++label) {
    const auto& count = counts[label];
    Json entry = {{"texts", count.texts}, {"predicted", count.predicted}, {"correct", count.correct}};
    if (const auto f1 = count.f1()) entry["f1"] = *f1;
    append(classes, names[label], std::move(entry));
  }
  return classes;
}

double accuracy_of(const std::vector<ClassCounts>& counts) {
  std::int64_t correct = 0, texts = 0;
  for (const auto& count : counts) {
    correct += count.correct;
    texts += count.texts;
  }
  return static_cast<double>(correct) / static_cast<double>(texts);
}

}  // namespace

ClassificationMetrics::ClassificationMetrics(std::shared_ptr<const LabelledDataset> dataset, SelectionMetric selection)
    : dataset_(std::move(dataset)), selection_(selection) {}

void ClassificationMetrics::score(const torch::Tensor& given_lv, const Batch& batch, ScoreSums& sums) const {
  const auto logits_lv = widened(given_lv);
  sums.add("loss", at::cross_entropy_loss(logits_lv, batch.labels_l, {}, at::Reduction::Sum));
  sums.append("probabilities", torch::softmax(logits_lv.to(torch::kDouble), 1));
  sums.append("labels", batch.labels_l);
  sums.add("weight", batch.weight);
}

Json ClassificationMetrics::report(const ScoreSums& sums, Split) const {
  return report_of(to_probabilities(sums), sums.item("loss") / sums.item("weight"));
}

Json ClassificationMetrics::report_of(const ClassProbabilities& probabilities, double loss) const {
  const auto counts = count_classes(probabilities);
  Json report = {{"loss", loss}, {"accuracy", accuracy_of(counts)}, {"f1", macro_f1(counts)}};
  if (std::isfinite(loss)) {  // a network that diverged ranks nothing
    if (const auto auc = roc_auc(probabilities)) report["auc"] = *auc;
    report["calibration_error"] = calibration_error(probabilities);
  }
  report["texts"] = probabilities.texts();
  if (labels().size() <= most_reported_classes) report["classes"] = describe_classes(counts, labels());
  return report;
}

Json ClassificationMetrics::tables(const ScoreSums& sums) const { return tables_of(to_probabilities(sums)); }

Json ClassificationMetrics::tables_of(const ClassProbabilities& probabilities) const {
  Json tables = {{"classes", describe_classes(count_classes(probabilities), labels())}};
  if (labels().size() > most_confused_classes) return tables;
  auto& confusion = tables["confusion"] = Json::object();
  const auto table = confusion_table(probabilities);
  auto count = table.begin();
  for (const auto& label : labels()) {
    auto row = Json::object();
    for (const auto& predicted : labels()) append(row, predicted, *count++);
    append(confusion, label, std::move(row));
  }
  return tables;
}

std::string ClassificationMetrics::confusion_csv(const ScoreSums& sums) const {
  const auto table = confusion_table(to_probabilities(sums));
  std::string text = "true_label";
  for (const auto& label : labels()) text += "," + csv_field(label);
  auto count = table.begin();
  for (const auto& label : labels()) {
    text += "\n" + csv_field(label);
    for (std::size_t predicted = 0; predicted < labels().size(); ++predicted)
      fmt::format_to(std::back_inserter(text), ",{}", *count++);
  }
  return text + "\n";
}

ClassProbabilities ClassificationMetrics::probabilities_of(const ScoreSums& sums, Split split) const {
  const auto& order = dataset_->source_order(split);
  const auto places_l = torch::tensor(std::vector<std::int64_t>(order.begin(), order.end()));
  const auto inverse_l = places_l.argsort();
  return to_probabilities(sums.joined("probabilities").cpu().index_select(0, inverse_l),
                          sums.joined("labels").cpu().index_select(0, inverse_l));
}

double ClassificationMetrics::selection_error(const Json& report) const {
  if (selection_ == SelectionMetric::loss) return report.at("loss");
  return 1 - report.value(std::string(to_string(selection_)), 0.0);
}

std::vector<std::string> ClassificationMetrics::headline() const {
  std::vector<std::string> names = {"accuracy"};
  if (selection_ == SelectionMetric::auc) names.push_back("auc");
  return names;
}

}  // namespace metaformer
