#include "infer/linear_training.h"

#include <chrono>

#include "base/files.h"
#include "base/log.h"
#include "infer/linear_classifier.h"
#include "ops/device.h"
#include "run/metrics_log.h"
#include "run/test_predictions.h"
#include "tasks/class_probabilities.h"
#include "tasks/embedding_scale.h"
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

using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t only_step = 1;

LinearModel fit(const LinearConfig& config, const Task& task) {
  const auto texts = training_features(*task.batches, [&](const Batch& batch) { return row_features(batch, config); });
  log::info("fitting the linear model to {} texts at once", texts.size());
  const auto classes = static_cast<std::int64_t>(task.data->codec().labels.size());
  return {config, fit_linear_classifier(texts, classes, config)};
}

Progress progress_after(const Task& task, const Json& training, const Json& validation, double seconds) {
  Progress progress{.step = only_step, .best = {}};
  progress.best = BestSoFar{only_step, validation.at("loss").get<double>(), task.metrics->selection_error(validation)};
  progress.last_train_loss = training.at("loss").get<double>();
  progress.train_seconds = seconds;
  progress.evaluated_step = only_step;
  progress.validation = validation;
  return progress;
}

}  // namespace

RunSummary train_linear(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device) {
  const auto& config = experiment.config;
  const auto start = std::chrono::steady_clock::now();
  auto model = fit(std::get<LinearConfig>(config.model), task);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  model.to(device);
  MetricsLog metrics(run, LogPosition{});
  metrics.write_config(config);
  const auto report_split = [&](Split split) {
    const auto sums = score_split(model, task, split, config.train.precision, device);
    if (split == Split::validation) write_confusion(run, task, split, sums);
    return task.metrics->report(sums, task.batches->source_of(split));
  };
  const auto evaluate = [&](Split split) {
    auto result = split == Split::test ? report_test(model, task, config.train, run, device) : report_split(split);
    metrics.write(only_step, std::string(to_string(split)), result);
    log::info("{}: {}", to_string(split), headline_of(task, result));
    return result;
  };
  const auto training = evaluate(Split::train), validation = evaluate(Split::validation);
  const auto progress = progress_after(task, training, validation, seconds.count());
  metrics.sync();
  save_checkpoint(run, progress, model.tensors(), {}, task.data->codec(), config.train.keep_checkpoints);
  link_latest(run.path());
  return {.steps = progress.step,
          .train_loss = progress.last_train_loss,
          .val_loss = progress.best->loss,
          .best_val_loss = progress.best->loss,
          .best_val_error = progress.best->error,
          .best_step = progress.best->step,
          .validation = validation,
          .test = task.batches->has(Split::test) ? evaluate(Split::test) : Json(),
          .stopped_early = false,
          .parameters = model.parameters(),
          .mixer_parameters = 0,
          .stepwise = std::nullopt,
          .peak_memory_bytes = peak_memory_bytes(device),
          .train_seconds = progress.train_seconds,
          .run = std::filesystem::absolute(run.path()).lexically_normal().string(),
          .baselines = {}};
}

}  // namespace metaformer
