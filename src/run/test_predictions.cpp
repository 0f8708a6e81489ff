#include "run/test_predictions.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files.h"
#include "run/safetensors.h"
#include "tasks/classification_task.h"

namespace metaformer {

namespace {

std::filesystem::path file_of(const RunDirectory& run) { return run.path() / "test_predictions.safetensors"; }

}  // namespace

std::optional<TestPredictions> read_test_predictions(const RunDirectory& run) {
  constexpr std::uintmax_t largest = std::uintmax_t{1} << 34;
  const auto file = file_of(run);
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  TestPredictions predictions;
  for (const auto& [name, tensor] : from_safetensors(read_file(file, largest, ExitCode::failure), file.string())) {
    if (name == "probabilities") predictions.probabilities_lv = tensor;
    if (name == "labels") predictions.labels_l = tensor;
  }
  const auto& [probabilities_lv, labels_l] = predictions;
  const bool is_valid = probabilities_lv.defined() && labels_l.defined() && probabilities_lv.dim() == 2 &&
                        labels_l.dim() == 1 && probabilities_lv.size(0) == labels_l.size(0) &&
                        probabilities_lv.size(1) > 0 && probabilities_lv.scalar_type() == torch::kDouble &&
                        labels_l.scalar_type() == torch::kLong;
  if (!is_valid)
    throw Error(ExitCode::failure, fmt::format("{}: expected 'probabilities', float64 [texts, classes], and 'labels', "
                                               "int64 [texts]",
                                               file.string()));
  return predictions;
}

void write_confusion(const RunDirectory& run, const Task& task, Split split, const ScoreSums& sums) {
  if (task.classes == nullptr || task.classes->labels().size() > most_confused_classes) return;
  write_file_atomically(run.confusion_file(to_string(split)), task.classes->confusion_csv(sums));
}

Evaluation report_test(const Scoring& scoring, const TrainConfig& train, const RunDirectory& run) {
  const auto& task = scoring.task;
  const auto sums = score_split(scoring, Split::test);
  if (scoring.group.is_first()) {
    write_confusion(run, task, Split::test, sums);
    if (task.classes != nullptr && !train.overfit_batch) {
      const auto predicted = task.classes->probabilities_of(sums, Split::test);
      const auto probabilities_lv = torch::tensor(predicted.values, torch::kDouble).view({-1, predicted.classes});
      write_file_atomically(file_of(run), to_safetensors({{"probabilities", probabilities_lv},
                                                          {"labels", torch::tensor(predicted.labels, torch::kLong)}}));
    }
  }
  return report_of(task, Split::test, sums);
}

}  // namespace metaformer
