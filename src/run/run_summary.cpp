#include "run/run_summary.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "run/safetensors.h"
#include "tasks/calibration.h"
#include "tasks/class_tables.h"
#include "tasks/classification_task.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

void fields(AnyOf<RunSummary> auto& summary, auto field) {
  auto* stepwise = summary.stepwise ? &*summary.stepwise : nullptr;
  field("steps", summary.steps);
  field("train_loss", summary.train_loss);
  field("val_loss", summary.val_loss);
  field("best_val_loss", summary.best_val_loss);
  field("best_val_error", summary.best_val_error);
  field("best_step", summary.best_step);
  field("validation", summary.validation);
  field("test", summary.test);
  field("temperature", summary.temperature);
  field("stopped_early", summary.stopped_early);
  field("parameters", summary.parameters);
  field("mixer_parameters", summary.mixer_parameters);
  if (stepwise != nullptr) {
    field("ms_per_step", stepwise->ms_per_step);
    field("tokens_per_second", stepwise->tokens_per_second);
    field("operations_per_token", stepwise->costs.operations_per_token);
    field("state_bytes", stepwise->costs.state_bytes);
    field("bytes_per_token", stepwise->bytes_per_token);
  }
  field("peak_memory_bytes", summary.peak_memory_bytes);
  if (stepwise != nullptr) {
    field("rollbacks", stepwise->rollbacks);
    field("spikes", stepwise->spikes);
    field("skipped_steps", stepwise->skipped_steps);
    field("seed", stepwise->seed);
    field("tokens", stepwise->tokens);
    field("epochs", stepwise->epochs);
    field("clipped_fraction", stepwise->clipped_fraction);
    field("evaluated_tokens", stepwise->evaluated_tokens);
    field("validation_tokens", stepwise->validation_tokens);
  }
  field("train_seconds", summary.train_seconds);
  if (stepwise != nullptr) {
    field("evaluation_seconds", stepwise->evaluation_seconds);
    field("checkpoint_seconds", stepwise->checkpoint_seconds);
    field("startup_seconds", stepwise->startup_seconds);
    field("wall_seconds", stepwise->wall_seconds);
  }
  field("attention_collapse", summary.attention_collapse);
  field("run", summary.run);
  field("baselines", summary.baselines);
}

RunSummary summary_of(const RunDirectory& run, const Progress& progress) {
  const auto& best = progress.best.value();
  return {.steps = progress.step,
          .train_loss = progress.last_train_loss,
          .val_loss = progress.validation->at("loss"),
          .best_val_loss = best.loss,
          .best_val_error = best.error,
          .best_step = best.step,
          .validation = progress.validation,
          .test = {},
          .temperature = {},
          .stepwise = {},
          .train_seconds = progress.train_seconds,
          .run = std::filesystem::absolute(run.path()).lexically_normal().string(),
          .baselines = {},
          .attention_collapse = progress.collapse};
}

Json to_json(const RunSummary& summary) {
  auto json = json_of(summary);
  if (!summary.temperature) json.erase("temperature");
  if (!summary.attention_collapse) json.erase("attention_collapse");
  if (summary.baselines.empty()) json.erase("baselines");
  return json;
}

void write_summary(const RunDirectory& run, const RunSummary& summary) {
  write_file_atomically(run.summary_file(), json_text(to_json(summary), 2) + "\n");
}

std::optional<RunSummary> read_summary(const RunDirectory& run) {
  constexpr std::uintmax_t largest = 1 << 26;
  constexpr auto any_number = std::numeric_limits<std::int64_t>::max();  // for tables of many classes
  if (!std::filesystem::exists(run.summary_file())) return std::nullopt;
  const auto json = parse_json<Json>(read_file(run.summary_file(), largest, ExitCode::failure), any_number);
  if (!json.is_object()) return std::nullopt;
  RunSummary summary;
  if (json.contains("ms_per_step")) summary.stepwise.emplace();
  const auto ignore = [](const std::string& key, std::string_view) { throw Error(ExitCode::failure, key); };
  fields(summary, [&]<class T>(const char* key, T& value) {
    try {
      read_member(json, key, value, ignore);
    } catch (const Error&) {
      value = T();
      if constexpr (std::same_as<T, double>) value = std::numeric_limits<double>::quiet_NaN();
    }
  });
  return summary;
}

std::optional<SplitPredictions> read_predictions(const RunDirectory& run, Split split) {
  constexpr std::uintmax_t largest = std::uintmax_t{1} << 34;
  const auto file = run.predictions_file(to_string(split));
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  SplitPredictions predictions;
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

void write_predictions(const RunDirectory& run, const TrainConfig& train, const Task& task, Split split,
                       const ScoreSums& sums) {
  if (task.classes == nullptr || train.overfit_batch) return;
  const auto predicted = task.classes->probabilities_of(sums, split);
  const auto probabilities_lv = torch::tensor(predicted.values, torch::kDouble).view({-1, predicted.classes});
  write_file_atomically(
      run.predictions_file(to_string(split)),
      to_safetensors({{"probabilities", probabilities_lv}, {"labels", torch::tensor(predicted.labels, torch::kLong)}}));
}

TestReport report_test(const Scoring& scoring, const TrainConfig& train, const RunDirectory& run,
                       const std::optional<double>& temperature) {
  const auto& task = scoring.task;
  const auto sums = score_split(scoring, Split::test);
  if (scoring.group.is_first()) {
    write_confusion(run, task, Split::test, sums);
    write_predictions(run, train, task, Split::test, sums);
  }
  TestReport report{.evaluation = report_of(task, Split::test, sums), .tables = {}};
  add_scaled_scores(report.evaluation, task, sums, temperature);
  if (task.classes != nullptr) report.tables = class_tables(report_of(task, Split::test, sums, Tables::all));
  return report;
}

}  // namespace metaformer
