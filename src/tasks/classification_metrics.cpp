#include "tasks/classification_metrics.h"

#include <cmath>

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

// How the texts of a confusion table are classified, by class and altogether.
struct ByClass {
  Json classes, confusion;
  double accuracy = 0, f1 = 0;
};

ByClass describe_classes(const ClassProbabilities& probabilities, const std::vector<std::string>& names) {
  const auto table = confusion_table(probabilities);
  const auto count = static_cast<std::int64_t>(names.size());
  const auto at = [&](std::int64_t truth, std::int64_t predicted) {
    return table[static_cast<std::size_t>(truth * count + predicted)];
  };
  ByClass result;
  std::int64_t correct = 0;
  for (std::int64_t label = 0; label < count; ++label) {
    const auto& name = names[static_cast<std::size_t>(label)];
    std::int64_t texts = 0, predicted = 0;
    for (std::int64_t other = 0; other < count; ++other) {
      texts += at(label, other);
      predicted += at(other, label);
      result.confusion[name][names[static_cast<std::size_t>(other)]] = at(label, other);
    }
    const double f1 = f1_score(table, count, label);
    result.classes[name] = {{"texts", texts}, {"predicted", predicted}, {"correct", at(label, label)}, {"f1", f1}};
    correct += at(label, label);
    result.f1 += f1 / static_cast<double>(count);
  }
  result.accuracy = static_cast<double>(correct) / static_cast<double>(probabilities.texts());
  return result;
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
  return report_of(to_probabilities(sums.joined("probabilities"), sums.joined("labels")),
                   sums.item("loss") / sums.item("weight"));
}

Json ClassificationMetrics::report_of(const ClassProbabilities& probabilities, double loss) const {
  const auto by_class = describe_classes(probabilities, labels());
  Json report = {{"loss", loss}, {"accuracy", by_class.accuracy}, {"f1", by_class.f1}};
  if (std::isfinite(loss)) {  // a network that diverged ranks nothing
    if (const auto auc = roc_auc(probabilities)) report["auc"] = *auc;
    report["calibration_error"] = calibration_error(probabilities);
  }
  report["texts"] = probabilities.texts();
  report["classes"] = by_class.classes;
  report["confusion"] = by_class.confusion;
  return report;
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
