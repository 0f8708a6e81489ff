#include "config_reader/moved_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "config_reader/key_notation.h"

namespace metaformer {

namespace {

constexpr MovedKey moved_keys[] = {
    {"data.sort.length", "task.length", "task: sort"},
    {"data.sort.digits", "task.digits", "task: sort"},
    {"data.truncation", "task.truncation", "task: classification"},
    {"model.head", "task.head", "task: classification"},
    {"model.recalibrate", "task.head.recalibrate", "task: classification"},
    {"model.linear.ngrams", "model.ngrams", "model: linear"},
    {"model.linear.buckets", "model.buckets", "model: linear"},
    {"model.linear.naive_bayes", "model.naive_bayes", "model: linear"},
    {"model.linear.cost", "model.cost", "model: linear"},
    {"model.embedding_std", "model.embedding.std", ""},
    {"model.embedding_dropout", "model.embedding.dropout", ""},
    {"model.embedding_scale", "model.embedding.scale", ""},
    {"model.ngram_embedding.order", "model.embedding.ngrams.order", ""},
    {"model.ngram_embedding.buckets", "model.embedding.ngrams.buckets", ""},
    {"model.tie_embeddings", "model.embedding.tie", ""},
    {"train.min_learning_rate", "train.schedule.floor", ""},
    {"train.warmup_steps", "train.schedule.warmup_steps", ""},
    {"train.betas", "train.optimizer.betas", ""},
    {"train.weight_decay", "train.optimizer.weight_decay", ""},
    {"train.embedding_weight_decay", "train.optimizer.embedding_weight_decay", ""},
    {"train.eval_mode", "train.evaluation", ""},
    {"train.eval_batches", "train.evaluation.batches", "train.evaluation: random"},
    {"train.on_divergence", "train.divergence.action", ""},
    {"train.rollback_factor", "train.divergence.action.factor", "train.divergence.action: rollback"},
    {"train.max_rollbacks", "train.divergence.action.limit", "train.divergence.action: rollback"},
    {"train.spike_threshold", "train.divergence.spikes.threshold", ""},
    {"train.on_spike", "train.divergence.spikes.action", ""},
    {"train.label_smoothing", "task.label_smoothing", "task: classification"},
    {"train.class_weights", "task.class_weights", "task: classification"},
    {"train.token_removal", "task.token_removal", "task: classification"},
    {"train.token_unknown", "task.token_unknown", "task: classification"},
    {"train.bucketing", "task.bucketing", "task: classification"},
    {"train.selection_metric", "task.selection_metric", "task: classification"},
    {"train.baselines", "task.baselines", "task: classification"},
    {"train.sample_interval", "task.sample_interval", "task: language_model"},
};

// Removes what `path` names, and the sections that it leaves empty.
std::optional<ConfigNode> take(ConfigNode& section, std::string_view path) {
  const auto dot = path.find('.');
  const auto found = std::find_if(section.entries.begin(), section.entries.end(),
                                  [&](const auto& entry) { return entry.key.name == path.substr(0, dot); });
  if (found == section.entries.end()) return std::nullopt;
  auto taken = dot == std::string_view::npos ? std::optional(found->value) : take(found->value, path.substr(dot + 1));
  if (dot == std::string_view::npos || (taken && found->value.entries.empty())) section.entries.erase(found);
  return taken;
}

}  // namespace

std::vector<MovedKey> find_moved_keys(std::string_view path) {
  std::vector<MovedKey> found;
  for (const auto& moved : moved_keys)
    if (moved.from == path || section_of(moved.from) == path) found.push_back(moved);
  return found;
}

std::string describe_new_keys(const std::vector<MovedKey>& moved) {
  std::vector<std::string> keys, entries;
  for (const auto& row : moved) {
    keys.emplace_back(row.to);
    entries.push_back(fmt::format("{}: ...", last_part(row.to)));
  }
  const auto& first = moved.front();
  return fmt::format("{} ({})", fmt::join(keys, ", "),
                     as_yaml(section_of(first.to), fmt::format("{}", fmt::join(entries, ", ")), first.kind));
}

std::string moved_key_named(std::string_view name) {
  std::string_view path;
  for (const auto& moved : moved_keys) {
    if (last_part(moved.from) != name) continue;
    if (!path.empty()) return "";
    path = moved.to;
  }
  return std::string(path);
}

bool move_keys(ConfigNode& root) {
  bool is_any = false;
  for (const auto& moved : moved_keys) {
    auto value = take(root, moved.from);
    if (!value) continue;
    is_any = true;
    const auto where = value->location;
    merge_into(root, nest(std::string(moved.to), std::move(*value), where));
  }
  return is_any;
}

}  // namespace metaformer
