#include "config/moved_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

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

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// The path "a.b.c" as "a: {b: {c: ...}}", with the kind of the section that `kind` names ("a: x").
std::string as_yaml(std::string_view path, std::string_view section, std::string_view kind) {
  const auto name = last_part(section);
  if (section == path) return fmt::format("{}: ...", name);
  const auto next = path.substr(0, path.find('.', section.size() + 1));
  const bool has_kind = kind.starts_with(section) && kind.substr(section.size()).starts_with(": ");
  const auto chosen = has_kind ? fmt::format("kind: {}, ", kind.substr(section.size() + 2)) : "";
  return fmt::format("{}: {{{}{}}}", name, chosen, as_yaml(path, next, kind));
}

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

const MovedKey* find_moved_key(std::string_view path) {
  const auto section = std::string(path) + ".";
  for (const auto& moved : moved_keys)
    if (moved.from == path || moved.from.starts_with(section)) return &moved;
  return nullptr;
}

std::string describe_move(const MovedKey& moved) {
  return fmt::format("moved; write {} ({})", moved.to,
                     as_yaml(moved.to, moved.to.substr(0, moved.to.find('.')), moved.kind));
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
