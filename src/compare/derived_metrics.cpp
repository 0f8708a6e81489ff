#include "compare/derived_metrics.h"

namespace metaformer {

void add_derived_metrics(RunRecord& record) {
  auto& metrics = record.metrics;
  const auto smoothing = record.settings.find("task.label_smoothing");
  const bool same_loss = smoothing == record.settings.end() || smoothing->second == "0";
  if (same_loss && metrics.contains("val_loss") && metrics.contains("train_loss"))
    metrics["loss_gap"] = metrics["val_loss"] - metrics["train_loss"];
  const auto selection = record.settings.find("task.selection_metric");
  const bool by_loss = selection != record.settings.end() && selection->second == "loss";
  if (metrics.contains("best_val_error") && !by_loss) metrics["validation_score"] = 1 - metrics["best_val_error"];
}

void remove_derived_metrics(RunRecord& record) {
  for (const char* name : {"loss_gap", "validation_score"}) record.metrics.erase(name);
}

}  // namespace metaformer
