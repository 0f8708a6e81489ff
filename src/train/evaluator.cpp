#include "train/evaluator.h"

#include <fmt/format.h>

#include <cmath>

#include "base/files.h"
#include "base/log.h"
#include "infer/target_scores.h"
#include "ops/named_tensors.h"
#include "run/checkpoint.h"
#include "run/test_predictions.h"
#include "tasks/classification_task.h"
#include "train/divergence.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

TestPredictions to_tensors(const ClassProbabilities& probabilities) {
  return {.probabilities_lv = torch::tensor(probabilities.values, torch::kDouble).view({-1, probabilities.classes}),
          .labels_l = torch::tensor(probabilities.labels, torch::kLong)};
}

// The most tokens of an evaluation of the validation split; nothing: all of it.
std::optional<std::int64_t> evaluated_tokens(const TrainConfig& train) {
  if (train.overfit_batch) return std::nullopt;
  if (const auto* limited = std::get_if<LimitedEvaluationConfig>(&train.evaluation)) return limited->tokens;
  if (const auto* random = std::get_if<RandomEvaluationConfig>(&train.evaluation)) return random->tokens;
  return std::nullopt;
}

}  // namespace

bool is_finished(const TrainConfig& config, const Progress& progress) {
  return progress.step >= config.steps || (config.patience > 0 && progress.evaluations_since_best >= config.patience);
}

bool is_at(const TrainConfig& config, const Progress& progress, std::int64_t interval) {
  return progress.step % interval == 0 || is_finished(config, progress);
}

bool lacks_evaluation(const TrainConfig& config, const Progress& progress) {
  return progress.step > 0 && is_at(config, progress, config.eval_interval) && !is_evaluated(progress);
}

bool is_checkpoint_due(const TrainConfig& config, const Progress& progress) {
  const bool is_best = progress.best && progress.best->step == progress.step;
  return !lacks_evaluation(config, progress) && (is_best || is_at(config, progress, config.checkpoint_interval));
}

void write_confusion(const RunDirectory& run, const Task& task, Split split, const ScoreSums& sums) {
  if (task.classes == nullptr || task.classes->labels().size() > most_confused_classes) return;
  write_file_atomically(run.confusion_file(to_string(split)), task.classes->confusion_csv(sums));
}

Json report_test(const Scoring& scoring, const TrainConfig& train, const RunDirectory& run) {
  const auto& task = scoring.task;
  const auto sums = score_split(scoring, Split::test);
  if (scoring.group.is_first()) {
    write_confusion(run, task, Split::test, sums);
    if (task.classes != nullptr && !train.overfit_batch)
      write_test_predictions(run, to_tensors(task.classes->probabilities_of(sums, Split::test)));
  }
  return report_of(task, Split::test, sums);
}

Evaluator::Evaluator(const Task& task, Step& step)
    : config_(step.config()),
      task_(task),
      step_(step),
      predictor_(*step.model),
      scoring_{predictor_, task, config_.train.precision, step.device(), step.group()},
      part_(part_of_split(*task.batches, Split::validation, evaluated_tokens(config_.train), predictor_.remembers())) {}

void Evaluator::adapt(std::int64_t step) {
  if (adapted_step_ == step) return;
  task_.before_evaluation(*step_.model, step_.device());
  adapted_step_ = step;
}

Json Evaluator::estimate(std::int64_t step, MetricsLog& metrics) {
  const auto batches = std::get<RandomEvaluationConfig>(config_.train.evaluation).batches;
  Json report;
  for (const auto split : {Split::train, Split::validation}) {
    report = report_of(task_, split, score_random_batches(scoring_, split, batches));
    metrics.write(step, fmt::format("{}_estimate", to_string(split)), report);
  }
  return report;
}

Json Evaluator::evaluate_part(std::int64_t step, MetricsLog& metrics, ScoreSums& sums) {
  sums = score_part(scoring_, Split::validation, part_);
  auto report = report_of(task_, Split::validation, sums);
  metrics.write(step, "validation", report);
  return report;
}

// Estimates are compared with estimates; the part of the split that is evaluated where training ends is for the report.
Progress Evaluator::evaluate(const RunDirectory& run, const Progress& now, MetricsLog& metrics) {
  const bool estimates = is<RandomEvaluationConfig>(config_.train.evaluation);
  adapt(now.step);
  auto after = now;
  ScoreSums sums;  // of the part
  after.validation = estimates ? estimate(now.step, metrics) : evaluate_part(now.step, metrics, sums);
  const double loss = after.validation.at("loss").get<double>();
  if (!std::isfinite(loss)) throw divergence_error(step_, now, "validation loss");
  const double error = task_.metrics->selection_error(after.validation);
  const bool improved = !after.best || error < after.best->error;
  after.evaluations_since_best = improved ? 0 : after.evaluations_since_best + 1;
  if (improved) after.best = BestSoFar{after.step, loss, error};
  after.evaluated_step = after.step;
  if (is_finished(config_.train, after)) {
    if (estimates) after.validation = evaluate_part(now.step, metrics, sums);
    if (scoring_.group.is_first()) write_confusion(run, task_, Split::validation, sums);
  }
  log::info("step {}: validation {}{}", after.step, headline_of(task_, after.validation), improved ? " (best)" : "");
  return after;
}

// The test split is evaluated as a whole, however large.
void Evaluator::describe_test() const {
  const auto usual = evaluated_tokens(config_.train);
  if (!usual) return;
  const auto tokens = part_of_split(*task_.batches, Split::test, std::nullopt, /*in_order=*/false).tokens;
  if (tokens > *usual) log::info("evaluating all {} tokens of the test split", tokens);
}

Json Evaluator::test(const RunDirectory& run, const Progress& now, MetricsLog& metrics) {
  const auto step = now.best->step;
  if (step != now.step) {
    const auto best = load_checkpoint(run, step_name(step), WithOptimizer::no);
    copy_by_name(best.model, named_state(*step_.model), (best.folder / "model.safetensors").string());
  }
  describe_test();
  auto report = report_test(scoring_, config_.train, run);
  if (task_.pairs != nullptr && !config_.train.overfit_batch)
    report["written"] =
        score_written_targets(*step_.model, config_, step_.device(), *task_.pairs, Split::test, {}, scoring_.group);
  metrics.write(step, "test", report);
  log::info("test, step {}: {}", step, headline_of(task_, report));
  return report;
}

}  // namespace metaformer
