#include "baselines/linear_training.h"

#include <chrono>

#include "base/log.h"
#include "baselines/linear_classifier.h"
#include "infer/evaluation.h"
#include "model/linear_model.h"
#include "ops/device.h"
#include "run/checkpoint.h"
#include "run/metrics_log.h"
#include "run/named_tensors.h"
#include "tasks/training_features.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t only_step = 1;

NamedTensors to_tensors(LinearWeights& weights) {
  const auto buckets = static_cast<std::int64_t>(weights.weights.size()) / weights.classes;
  return {{"weight", torch::from_blob(weights.weights.data(), {buckets, weights.classes}, torch::kFloat)},
          {"bias", torch::from_blob(weights.bias.data(), {weights.classes}, torch::kFloat)}};
}

void fit(SequenceModel& model, const Task& task) {
  const auto& config = model.config().linear;
  const auto texts = training_features(task, [&](const Batch& batch) { return row_features(batch, config); });
  log::info("fitting the linear model to {} texts at once", texts.size());
  auto weights = fit_linear_classifier(texts, static_cast<std::int64_t>(task.codec().labels.size()), config);
  copy_by_name(to_tensors(weights), named_state(model), "the linear model");
}

Progress progress_after(const Task& task, const Json& training, const Json& validation, double seconds) {
  Progress progress{.step = only_step, .best = {}};
  progress.best = BestSoFar{only_step, validation.at("loss").get<double>(), task.selection_error(validation)};
  progress.last_train_loss = training.at("loss").get<double>();
  progress.train_seconds = seconds;
  progress.evaluated_step = only_step;
  progress.validation = validation;
  return progress;
}

}  // namespace

Json train_linear(const Experiment& experiment, const RunDirectory& run, const Task& task, torch::Device device) {
  const auto& train = experiment.config.train;
  const auto start = std::chrono::steady_clock::now();
  const auto model = task.make_model();
  fit(*model, task);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  model->to(device);
  MetricsLog metrics(run, LogPosition{});
  metrics.write_config(experiment.config);
  const auto evaluate = [&](Split split) {
    auto result = evaluate_split(*model, task, split, train.precision, device);
    metrics.write(only_step, std::string(to_string(split)), result);
    log::info("{}: {}", to_string(split), headline_of(task, result));
    return result;
  };
  const auto training = evaluate(Split::train), validation = evaluate(Split::validation);
  const auto progress = progress_after(task, training, validation, seconds.count());
  metrics.sync();
  save_checkpoint(run, progress, named_state(*model), {}, task.codec(), train.keep_checkpoints);
  const auto parameters = count_parameters(*model);
  return {{"steps", progress.step},
          {"train_loss", progress.last_train_loss},
          {"val_loss", progress.best->loss},
          {"best_val_loss", progress.best->loss},
          {"best_val_error", progress.best->error},
          {"best_step", progress.best->step},
          {"validation", validation},
          {"test", task.has(Split::test) ? evaluate(Split::test) : Json()},
          {"stopped_early", false},
          {"parameters", parameters.all},
          {"mixer_parameters", parameters.mixers},
          {"peak_memory_bytes", peak_memory_bytes(device)},
          {"train_seconds", progress.train_seconds},
          {"run", std::filesystem::absolute(run.path()).lexically_normal().string()}};
}

}  // namespace metaformer
