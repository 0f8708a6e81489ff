#include "config/unused_keys.h"

#include <algorithm>
#include <array>
#include <functional>

#include "config/writer.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

// Whether `key` is `section` or lies in it.
bool is_in(std::string_view key, std::string_view section) {
  return key.starts_with(section) && (key.size() == section.size() || key[section.size()] == '.');
}

void collect_differences(const Json& section, const Json& usual, const std::string& prefix,
                         std::vector<std::string>& keys) {
  for (const auto& [name, value] : section.items()) {
    const auto default_value = usual.is_object() ? usual.value(name, Json()) : Json();
    if (value.is_object()) {
      collect_differences(value, default_value, prefix + name + ".", keys);
    } else if (value != default_value) {
      keys.push_back(prefix + name);
    }
  }
}

struct Rule {
  bool holds;
  std::function<bool(std::string_view)> concerns;
  std::string why;
};

auto one_of(std::vector<std::string_view> sections) {
  return [sections = std::move(sections)](std::string_view key) {
    return std::any_of(sections.begin(), sections.end(), [&](auto section) { return is_in(key, section); });
  };
}

bool is_of_networks(std::string_view key) {
  return (is_in(key, "model") || is_in(key, "train")) && !applies_to_linear(key);
}

std::vector<Rule> rules_for(const ExperimentConfig& config) {
  const auto& model = config.model;
  const auto& train = config.train;
  const bool linear = model.kind == ModelKind::linear, classifies = config.task == TaskKind::classification;
  const bool named_corpus = classifies && config.data.corpus != DataConfig().corpus;
  return {
      {!classifies, one_of({"train.baselines"}), "has no meaning for task " + std::string(to_string(config.task))},
      {named_corpus, one_of({"data.validation_path", "data.test_path"}),
       "has no effect with data.corpus " + config.data.corpus + ", which brings its own splits"},
      {named_corpus, one_of({"data.format", "data.header", "data.text_field", "data.label_field", "data.rating"}),
       "has no effect with data.corpus " + config.data.corpus + ": it is for tables"},
      {!linear, one_of({"model.linear"}), "has no effect with model.kind transformer"},
      {linear, is_of_networks, "has no effect with model.kind linear, which is no network and is fitted at once"},
      {model.ngram_embedding.order == 1, one_of({"model.ngram_embedding.buckets"}),
       "has no effect with model.ngram_embedding.order 1: there are no n-grams"},
      {model.norm.position == NormPosition::post, one_of({"model.norm.final"}),
       "has no effect with model.norm.position post"},
      {train.eval_mode == EvaluationMode::whole, one_of({"train.eval_batches"}),
       "has no effect with train.eval_mode whole"},
      {train.schedule == ScheduleKind::constant, one_of({"train.min_learning_rate"}),
       "has no effect with train.schedule constant"},
      {train.on_divergence == OnDivergence::stop, one_of({"train.rollback_factor", "train.max_rollbacks"}),
       "has no effect with train.on_divergence stop"},
      {train.spike_threshold == 0, one_of({"train.on_spike"}),
       "has no effect with train.spike_threshold 0: nothing is a spike"},
  };
}

}  // namespace

bool applies_to_linear(std::string_view key) {
  static const auto applies =
      one_of({"model.kind", "model.context", "model.linear", "train.batch_size", "train.precision",
              "train.keep_checkpoints", "train.selection_metric", "train.overfit_batch", "train.seed"});
  return applies(key);
}

std::optional<UnusedKey> find_unused_key(const ExperimentConfig& config) {
  std::vector<std::string> changed;
  collect_differences(config_to_json(config), config_to_json(ExperimentConfig{}), "", changed);
  for (const auto& rule : rules_for(config))
    if (rule.holds)
      for (const auto& key : changed)
        if (rule.concerns(key)) return UnusedKey{key, rule.why};
  return std::nullopt;
}

}  // namespace metaformer
