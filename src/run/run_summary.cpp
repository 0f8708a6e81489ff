#include "run/run_summary.h"

#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

// Calls `field(key, value)` for every key of summary.json, in their order.
template <class Summary, class Field>
void visit(Summary& summary, Field field) {
  auto* stepwise = summary.stepwise ? &*summary.stepwise : nullptr;
  field("steps", summary.steps);
  field("train_loss", summary.train_loss);
  field("val_loss", summary.val_loss);
  field("best_val_loss", summary.best_val_loss);
  field("best_val_error", summary.best_val_error);
  field("best_step", summary.best_step);
  field("validation", summary.validation);
  field("test", summary.test);
  field("stopped_early", summary.stopped_early);
  field("parameters", summary.parameters);
  field("mixer_parameters", summary.mixer_parameters);
  if (stepwise != nullptr) {
    field("ms_per_step", stepwise->ms_per_step);
    field("tokens_per_second", stepwise->tokens_per_second);
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

// Leaves out a collapse and baselines that a run does not have.
struct Writer {
  Json& json;

  template <class T>
  void operator()(const char* key, const T& value) const {
    json[key] = value;
  }
  void operator()(const char* key, const std::optional<double>& value) const {
    json[key] = value ? Json(*value) : Json();
  }
  void operator()(const char* key, const std::optional<AttentionCollapse>& value) const {
    if (value) json[key] = to_json(*value);
  }
  void operator()(const char* key, const Json& value) const {
    if (!value.is_null() || key != std::string_view("baselines")) json[key] = value;
  }
};

// Values of another type count as absent.
struct Reader {
  const Json& json;

  Json at(const char* key) const { return json.value(key, Json()); }
  void operator()(const char* key, double& value) const {
    const auto found = at(key);
    value = found.is_number() ? found.get<double>() : std::numeric_limits<double>::quiet_NaN();
  }
  void operator()(const char* key, std::int64_t& value) const {
    const auto found = at(key);
    value = found.is_number_integer() ? found.get<std::int64_t>() : 0;
  }
  void operator()(const char* key, bool& value) const { value = at(key) == true; }
  void operator()(const char* key, std::string& value) const {
    const auto found = at(key);
    value = found.is_string() ? found.get<std::string>() : "";
  }
  void operator()(const char* key, std::optional<double>& value) const {
    const auto found = at(key);
    value = found.is_number() ? std::optional(found.get<double>()) : std::nullopt;
  }
  void operator()(const char* key, std::optional<AttentionCollapse>& value) const { value = collapse_of(at(key)); }
  void operator()(const char* key, Json& value) const { value = at(key); }
};

}  // namespace

Json to_json(const RunSummary& summary) {
  Json json = Json::object();
  visit(summary, Writer{json});
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
  if (!json.is_object()) return std::nullopt;
  RunSummary summary;
  if (json.contains("ms_per_step")) summary.stepwise.emplace();
  visit(summary, Reader{json});
  return summary;
}

}  // namespace metaformer
