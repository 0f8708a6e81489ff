#include "tasks/classification_metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/delimited_rows.h"
#include "tasks/batches.h"

namespace metaformer {

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
