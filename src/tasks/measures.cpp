#include "tasks/measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace metaformer {

namespace {

constexpr double percent = 100, kibibytes = 1.0 / (1 << 10), mebibytes = 1.0 / (1 << 20);

// "val_loss_128": evaluated with another context than in training.
constexpr std::string_view longer_context = "val_loss_";

const Measure* find_measure(const std::string& id) {
  const auto& all = all_measures();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& measure) { return measure.id == id; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<Measure>& all_measures() {
  using enum Measure::Better;
  using enum Measure::Origin;
  using enum Measure::Column;
  static const std::vector<Measure> measures = {
      {"steps", "steps", 1, 0, neither, summary, early},
      {"train_loss", "training loss", 1, 4, lower, summary, early},
      {"val_loss", "validation loss", 1, 4, lower, summary, early},
      {"best_val_loss", "best validation loss", 1, 4, lower, summary, early},
      {"best_step", "best step", 1, 0, neither, summary, early},
      {"parameters", "parameters", 1, 0, neither, summary, early},
      {"mixer_parameters", "in mixers", 1, 0, neither, summary, early},
      {"operations_per_token", "operations a token, M", 1e-6, 2, neither, summary, early},
      {"state_bytes", "state, KiB", kibibytes, 1, neither, summary, early},
      {"ms_per_step", "ms a step", 1, 1, lower, summary, early},
      {"tokens_per_second", "tokens/s", 1, 0, higher, summary, early},
      {"peak_memory_bytes", "peak memory, MiB", mebibytes, 0, lower, summary, early},
      {"accuracy", "validation accuracy %", percent, 2, higher, validation, early, false, "accuracy"},
      {"exact_match", "exact match %", percent, 2, higher, validation, early, false, "exact match"},
      {"best_exact_match", "exact match of the best step %", percent, 2, higher, other, early},
      {"perfect_since", "perfect since step", 1, 0, lower, other, early, true},
      {"collapse_step", "attention collapsed at step", 1, 0, neither, other, early, true},
      {"best_val_error", "best validation error", 1, 4, lower, other, late},
      {"test_accuracy", "test accuracy %", percent, 2, higher, test, late},
      {"test_f1", "test F1 %", percent, 2, higher, test, late},
      {"test_auc", "test AUC", 1, 4, higher, test, late},
      {"test_calibration_error", "test calibration error", 1, 4, lower, test, late},
      {"train_seconds", "training, s", 1, 1, lower, summary, late},
      {"wall_seconds", "wall time, s", 1, 1, lower, summary, late},
      {"bits_per_character", "bits per character", 1, 4, lower, validation, late},
      {"bits_per_byte", "bits per byte", 1, 4, lower, validation, late},
      {"lossless_bits_per_byte", "lossless bits per byte", 1, 4, lower, validation, late},
      {"bytes_per_token", "bytes a token", 1, 2, neither, summary, late},
      {"loss_gap", "validation - training loss", 1, 4, neither, derived},
      {"validation_score", "validation score %", percent, 2, higher, derived},
      {"perplexity", "validation perplexity", 1, 3, lower, validation},
      {"auc", "validation AUC %", percent, 2, higher, validation, none, false, "area under the ROC curve"},
      {"test_bleu", "test BLEU", 1, 2, higher, written},
      {"test_bleu_lowercase", "test BLEU, lower case", 1, 2, higher, written},
      {"test_chrf", "test chrF", 1, 2, higher, written},
      {"test_rouge_1", "test ROUGE-1 %", percent, 2, higher, written},
      {"test_rouge_2", "test ROUGE-2 %", percent, 2, higher, written},
      {"test_rouge_l", "test ROUGE-L %", percent, 2, higher, written},
      {"test_exact_match", "test exact match %", percent, 2, higher, written},
      // Found by experiments/inspect_runs.py.
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
  };
  return measures;
}

std::string Measure::key() const {
  constexpr std::string_view prefix = "test_";
  return id.starts_with(prefix) ? id.substr(prefix.size()) : id;
}

Measure measure_of(const std::string& id) {
  if (const auto* found = find_measure(id)) return *found;
  if (!id.starts_with(longer_context)) return {.id = id, .title = id};
  return {.id = id,
          .title = fmt::format("validation loss with {} tokens", id.substr(longer_context.size())),
          .better = Measure::Better::lower};
}

bool is_own_measure(const std::string& id) {
  const auto* found = find_measure(id);
  return found != nullptr ? found->column != Measure::Column::none : id.starts_with(longer_context);
}

std::vector<std::string> default_measures(const std::set<std::string>& present) {
  std::vector<std::string> wanted = {"val_loss", "best_val_loss",
                                     present.contains("bits_per_byte") ? "bits_per_byte" : "bits_per_character"};
  if (present.contains("test_bleu"))  // before the accuracy, which such runs have, too
    wanted = {"test_bleu", "test_chrf", "test_rouge_l", "test_exact_match", "val_loss"};
  else if (present.contains("test_accuracy"))
    wanted = {"test_accuracy", "test_f1", "test_auc", "validation_score"};
  else if (present.contains("validation_score"))
    wanted = {"accuracy", "validation_score", "val_loss"};
  else if (present.contains("exact_match"))
    wanted = {"exact_match", "best_exact_match", "val_loss"};
  for (const auto& id : present)
    if (id.starts_with(longer_context)) wanted.push_back(id);
  std::erase_if(wanted, [&](const auto& id) { return !present.contains(id); });
  return wanted;
}

const std::vector<std::string>& cost_measures() {
  static const std::vector<std::string> ids = {"train_seconds", "ms_per_step", "peak_memory_bytes", "parameters",
                                               "mixer_parameters"};
  return ids;
}

std::string shown(const Measure& measure, double value) {
  const double scaled = value * measure.scale;
  if (const bool is_small_size = measure.scale < 1 && scaled > 0 && scaled < 1; is_small_size)
    return fmt::format("{:.3g}", scaled);
  if (measure.digits > 0) return fmt::format("{:.{}f}", scaled, measure.digits);
  auto text = fmt::format("{:.0f}", std::abs(scaled));
  for (auto at = std::ssize(text) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), 1, ',');
  if (scaled < 0 && text != "0") text.insert(0, 1, '-');
  return text;
}

std::string shown_difference(const Measure& measure, double value) {
  return fmt::format("{:+.{}f}", value * measure.scale, measure.digits);
}

std::string described(const std::string& key, double value) {
  const auto measure = measure_of(key);
  auto words = key;
  std::replace(words.begin(), words.end(), '_', ' ');
  return fmt::format("{} {}{}", words, shown(measure, value), measure.scale == percent ? "%" : "");
}

std::optional<double> value_of(const Scores& scores, std::string_view key) {
  for (const auto& [name, value] : scores)
    if (name == key) return std::visit([](auto number) { return static_cast<double>(number); }, value);
  return std::nullopt;
}

static std::optional<double> fraction(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? std::nullopt : std::optional(static_cast<double>(part) / static_cast<double>(whole));
}

std::optional<double> ClassCounts::precision() const { return fraction(correct, predicted); }
std::optional<double> ClassCounts::recall() const { return fraction(correct, texts); }

std::optional<double> ClassCounts::f1() const {
  if (texts + predicted == 0) return std::nullopt;
  return 2.0 * static_cast<double>(correct) / static_cast<double>(texts + predicted);  // multiplied out
}

}  // namespace metaformer
