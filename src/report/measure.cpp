#include "report/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace metaformer {

namespace {

constexpr double percent = 100, mebibytes = 1.0 / (1 << 20);

const std::vector<Metric>& known_metrics() {
  static const std::vector<Metric> metrics = {
      {"val_loss", "validation loss", 1, 4, Better::lower},
      {"best_val_loss", "best validation loss", 1, 4, Better::lower},
      {"train_loss", "training loss", 1, 4, Better::lower},
      {"loss_gap", "validation - training loss", 1, 4, Better::neither},
      {"bits_per_character", "bits per character", 1, 4, Better::lower},
      {"accuracy", "validation accuracy %", percent, 2, Better::higher},
      {"exact_match", "exact match %", percent, 2, Better::higher},
      {"best_exact_match", "exact match of the best step %", percent, 2, Better::higher},
      {"perfect_since", "perfect since step", 1, 0, Better::lower},
      {"collapse_step", "attention collapsed at step", 1, 0, Better::neither},
      {"validation_score", "validation score %", percent, 2, Better::higher},
      {"test_accuracy", "test accuracy %", percent, 2, Better::higher},
      {"test_f1", "test F1 %", percent, 2, Better::higher},
      {"test_auc", "test AUC", 1, 4, Better::higher},
      {"test_calibration_error", "test calibration error", 1, 4, Better::lower},
      {"test_bleu", "test BLEU", 1, 2, Better::higher},
      {"test_bleu_lowercase", "test BLEU, lower case", 1, 2, Better::higher},
      {"test_chrf", "test chrF", 1, 2, Better::higher},
      {"test_rouge_1", "test ROUGE-1 %", percent, 2, Better::higher},
      {"test_rouge_2", "test ROUGE-2 %", percent, 2, Better::higher},
      {"test_rouge_l", "test ROUGE-L %", percent, 2, Better::higher},
      {"test_exact_match", "test exact match %", percent, 2, Better::higher},
      // What experiments/inspect_runs.py finds.
      {"negative_scores", "negative scores %", percent, 1},
      {"negative_eigenvalues", "negative eigenvalues %", percent, 1},
      {"negative_pairs", "pairs with a negative square %", percent, 1},
      {"violated_triples", "violated triangles %", percent, 1},
      {"metric_heads", "heads whose form is a metric %", percent, 0},
      {"mean_attention_distance", "mean distance of attention, tokens", 1, 1},
      {"effective_context", "effective context, tokens", 1, 1},
      {"log_gradient_ratio", "log10(gradient at the embeddings / after the last block)", 1, 2},
      {"first_order_correlation", "order by the first head, rank correlation", 1, 2},
      {"best_order_correlation", "order by the best head, rank correlation", 1, 2},
      {"train_seconds", "training, s", 1, 1, Better::lower},
      {"ms_per_step", "ms a step", 1, 1, Better::lower},
      {"tokens_per_second", "tokens/s", 1, 0, Better::higher},
      {"peak_memory_bytes", "peak memory, MiB", mebibytes, 0, Better::lower},
      {"steps", "steps", 1, 0, Better::neither},
      {"best_step", "best step", 1, 0, Better::neither},
      {"parameters", "parameters", 1, 0, Better::neither},
      {"mixer_parameters", "in mixers", 1, 0, Better::neither},
  };
  return metrics;
}

// "val_loss_128": evaluated with another context than in training.
constexpr std::string_view longer_context = "val_loss_";

std::string with_commas(double value) {
  auto text = fmt::format("{:.0f}", std::abs(value));
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

}  // namespace

Metric metric_of(const std::string& name) {
  for (const auto& metric : known_metrics())
    if (metric.name == name) return metric;
  if (name.starts_with(longer_context))
    return {name, fmt::format("validation loss with {} tokens", name.substr(longer_context.size())), 1, 4,
            Better::lower};
  return {name, name, 1, 4, Better::neither};
}

bool is_known_metric(const std::string& name) {
  const auto& metrics = known_metrics();
  return name.starts_with(longer_context) ||
         std::any_of(metrics.begin(), metrics.end(), [&](const auto& metric) { return metric.name == name; });
}

bool may_be_absent(const std::string& name) { return name == "perfect_since" || name == "collapse_step"; }

std::vector<std::string> default_metrics(const std::set<std::string>& present) {
  std::vector<std::string> wanted = {"val_loss", "best_val_loss", "bits_per_character"};
  if (present.contains("test_bleu"))  // before the accuracy, which such runs have, too
    wanted = {"test_bleu", "test_chrf", "test_rouge_l", "test_exact_match", "val_loss"};
  else if (present.contains("test_accuracy"))
    wanted = {"test_accuracy", "test_f1", "test_auc", "validation_score"};
  else if (present.contains("validation_score"))
    wanted = {"accuracy", "validation_score", "val_loss"};
  else if (present.contains("exact_match"))
    wanted = {"exact_match", "best_exact_match", "val_loss"};
  for (const auto& name : present)
    if (name.starts_with(longer_context)) wanted.push_back(name);
  std::erase_if(wanted, [&](const auto& name) { return !present.contains(name); });
  return wanted;
}

const std::vector<std::string>& cost_metrics() {
  static const std::vector<std::string> names = {"train_seconds", "ms_per_step", "peak_memory_bytes", "parameters",
                                                 "mixer_parameters"};
  return names;
}

std::string shown(const Metric& metric, double value) {
  const double scaled = value * metric.scale;
  if (metric.digits > 0) return fmt::format("{:.{}f}", scaled, metric.digits);
  const auto text = with_commas(scaled);
  return scaled < 0 && text != "0" ? "-" + text : text;
}

std::string shown_difference(const Metric& metric, double value) {
  return fmt::format("{:+.{}f}", value * metric.scale, metric.digits);
}

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
