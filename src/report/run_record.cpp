#include "report/run_record.h"

#include "base/error.h"
#include "config/loader.h"
#include "config/writer.h"
#include "tasks/measures.h"

namespace metaformer {

namespace {

Settings without_seed(Settings settings) {
  settings.erase("train.seed");
  return settings;
}

}  // namespace

void add_derived_measures(RunRecord& record) {
  auto& measures = record.measures;
  const auto setting = [&](const char* key) {
    const auto found = record.settings.find(key);
    return found == record.settings.end() ? "" : found->second;
  };
  const auto smoothing = setting("task.label_smoothing");
  if ((smoothing.empty() || smoothing == "0") && measures.contains("val_loss") && measures.contains("train_loss"))
    measures["loss_gap"] = measures["val_loss"] - measures["train_loss"];
  if (measures.contains("best_val_error") && setting("task.selection_metric") != "loss")
    measures["validation_score"] = 1 - measures["best_val_error"];
}

void remove_derived_measures(RunRecord& record) {
  for (const auto& measure : all_measures())
    if (measure.origin == Measure::Origin::derived) record.measures.erase(measure.id);
}

Settings changed_settings(const ExperimentConfig& config) { return without_seed(flattened(config_changes(config))); }

Settings all_settings(const Settings& changed) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : changed) overrides.push_back(key + "=" + value);
  try {
    return without_seed(flattened(config_to_json(default_experiment(overrides).config)));
  } catch (const Error&) {
    return changed;  // of another version
  }
}

}  // namespace metaformer
