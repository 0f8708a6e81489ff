#include "run/run_summary.h"

#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

double number(const Json& json, const char* key) {
  const auto value = json.value(key, Json());
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t whole_number(const Json& json, const char* key) {
  const auto value = json.value(key, Json());
  return value.is_number_integer() ? value.get<std::int64_t>() : 0;
}

std::optional<StepwiseSummary> stepwise_of(const Json& json) {
  if (!json.contains("ms_per_step")) return std::nullopt;
  StepwiseSummary stepwise{.ms_per_step = number(json, "ms_per_step"),
                           .tokens_per_second = number(json, "tokens_per_second"),
                           .rollbacks = whole_number(json, "rollbacks"),
                           .spikes = whole_number(json, "spikes"),
                           .skipped_steps = whole_number(json, "skipped_steps"),
                           .seed = whole_number(json, "seed"),
                           .tokens = whole_number(json, "tokens"),
                           .epochs = std::nullopt,
                           .clipped_fraction = number(json, "clipped_fraction"),
                           .evaluated_tokens = whole_number(json, "evaluated_tokens"),
                           .validation_tokens = whole_number(json, "validation_tokens"),
                           .startup_seconds = number(json, "startup_seconds"),
                           .evaluation_seconds = number(json, "evaluation_seconds"),
                           .checkpoint_seconds = number(json, "checkpoint_seconds"),
                           .wall_seconds = number(json, "wall_seconds")};
  if (json.value("epochs", Json()).is_number()) stepwise.epochs = number(json, "epochs");
  return stepwise;
}

RunSummary from_json(const Json& json) {
  const auto run = json.value("run", Json());
  return {.steps = whole_number(json, "steps"),
          .train_loss = number(json, "train_loss"),
          .val_loss = number(json, "val_loss"),
          .best_val_loss = number(json, "best_val_loss"),
          .best_val_error = number(json, "best_val_error"),
          .best_step = whole_number(json, "best_step"),
          .validation = json.value("validation", Json()),
          .test = json.value("test", Json()),
          .stopped_early = json.value("stopped_early", Json()) == true,
          .parameters = whole_number(json, "parameters"),
          .mixer_parameters = whole_number(json, "mixer_parameters"),
          .stepwise = stepwise_of(json),
          .peak_memory_bytes = whole_number(json, "peak_memory_bytes"),
          .train_seconds = number(json, "train_seconds"),
          .run = run.is_string() ? run.get<std::string>() : "",
          .baselines = json.value("baselines", Json()),
          .attention_collapse = collapse_of(json.value("attention_collapse", Json()))};
}

}  // namespace

Json to_json(const RunSummary& summary) {
  Json json = {{"steps", summary.steps},
               {"train_loss", summary.train_loss},
               {"val_loss", summary.val_loss},
               {"best_val_loss", summary.best_val_loss},
               {"best_val_error", summary.best_val_error},
               {"best_step", summary.best_step},
               {"validation", summary.validation},
               {"test", summary.test},
               {"stopped_early", summary.stopped_early},
               {"parameters", summary.parameters},
               {"mixer_parameters", summary.mixer_parameters}};
  const auto& stepwise = summary.stepwise;
  if (stepwise)
    json.update({{"ms_per_step", stepwise->ms_per_step}, {"tokens_per_second", stepwise->tokens_per_second}});
  json["peak_memory_bytes"] = summary.peak_memory_bytes;
  if (stepwise)
    json.update({{"rollbacks", stepwise->rollbacks},
                 {"spikes", stepwise->spikes},
                 {"skipped_steps", stepwise->skipped_steps},
                 {"seed", stepwise->seed},
                 {"tokens", stepwise->tokens},
                 {"epochs", stepwise->epochs ? Json(*stepwise->epochs) : Json()},
                 {"clipped_fraction", stepwise->clipped_fraction},
                 {"evaluated_tokens", stepwise->evaluated_tokens},
                 {"validation_tokens", stepwise->validation_tokens}});
  json["train_seconds"] = summary.train_seconds;
  if (stepwise)
    json.update({{"evaluation_seconds", stepwise->evaluation_seconds},
                 {"checkpoint_seconds", stepwise->checkpoint_seconds},
                 {"startup_seconds", stepwise->startup_seconds},
                 {"wall_seconds", stepwise->wall_seconds}});
  if (summary.attention_collapse) json["attention_collapse"] = to_json(*summary.attention_collapse);
  json["run"] = summary.run;
  if (!summary.baselines.is_null()) json["baselines"] = summary.baselines;
  return json;
}

void write_summary(const RunDirectory& run, const RunSummary& summary) {
  write_file_atomically(run.summary_file(), json_text(to_json(summary), 2) + "\n");
}

std::optional<RunSummary> read_summary(const RunDirectory& run) {
  constexpr std::uintmax_t largest = 1 << 26;
  constexpr auto any_number = std::numeric_limits<std::int64_t>::max();  // of classes in its tables
  if (!std::filesystem::exists(run.summary_file())) return std::nullopt;
  const auto json = parse_json<Json>(read_file(run.summary_file(), largest, ExitCode::failure), any_number);
  return json.is_object() ? std::optional(from_json(json)) : std::nullopt;
}

}  // namespace metaformer
