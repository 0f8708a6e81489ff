#include "baselines/test_report.h"

#include "base/files.h"
#include "run/test_predictions.h"
#include "tasks/classification_metrics.h"
#include "tasks/evaluation.h"

namespace metaformer {

namespace {

TestPredictions to_tensors(const ClassProbabilities& probabilities) {
  return {.probabilities_lv = torch::tensor(probabilities.values, torch::kDouble).view({-1, probabilities.classes}),
          .labels_l = torch::tensor(probabilities.labels, torch::kLong)};
}

}  // namespace

void write_confusion(const RunDirectory& run, const Task& task, Split split, const ScoreSums& sums) {
  const auto* classifier = dynamic_cast<const ClassificationMetrics*>(task.metrics.get());
  if (classifier == nullptr || classifier->labels().size() > most_confused_classes) return;
  write_file_atomically(run.confusion_file(to_string(split)), classifier->confusion_csv(sums));
}

nlohmann::ordered_json report_test(const Predictor& predictor, const Task& task, const TrainConfig& train,
                                   const RunDirectory& run, torch::Device device, ProcessGroup& group) {
  const auto sums = score_split(predictor, task, Split::test, train.precision, device, group);
  const auto* classifier = dynamic_cast<const ClassificationMetrics*>(task.metrics.get());
  if (group.is_first()) write_confusion(run, task, Split::test, sums);
  if (classifier != nullptr && !train.overfit_batch && group.is_first())
    write_test_predictions(run, to_tensors(classifier->probabilities_of(sums, Split::test)));
  return task.metrics->report(sums, task.batches->source_of(Split::test));
}

}  // namespace metaformer
