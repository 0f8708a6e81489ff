#include "config/unused_keys.h"

#include <algorithm>
#include <array>
#include <functional>

#include "config/changes.h"

namespace metaformer {

namespace {

// Whether `key` is `section` or lies in it.
bool is_in(std::string_view key, std::string_view section) {
  return key.starts_with(section) && (key.size() == section.size() || key[section.size()] == '.');
}

void list_keys(const nlohmann::json& section, const std::string& prefix, std::vector<std::string>& keys) {
  for (const auto& [name, value] : section.items())
    value.is_object() ? list_keys(value, prefix + name + ".", keys) : keys.push_back(prefix + name);
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

std::vector<Rule> rules_of(const ClassificationConfig& task) {
  const bool named_corpus = task.data.corpus != DataConfig().corpus;
  const auto with_corpus = "has no effect with data.corpus " + task.data.corpus;
  return {
      {true, one_of({"model.embedding.tie", "train.loss_chunks"}),
       "has no meaning for task classification: leave it out"},
      {named_corpus, one_of({"data.validation_path", "data.test_path"}), with_corpus + ", which brings its own splits"},
      {named_corpus && !task.data.extra_path,
       one_of({"data.format", "data.header", "data.text_field", "data.label_field", "data.rating"}),
       with_corpus + ": it is for tables"},
  };
}

std::vector<Rule> rules_without_classes(std::string_view task) {
  return {{true, one_of({"model.embedding.ngrams", "model.embedding.region"}),
           "has no meaning for task " + std::string(task)}};
}

// Of a language model, masked or not.
std::vector<Rule> rules_of_text(std::string_view task, const TextDataConfig& data) {
  auto rules = rules_without_classes(task);
  rules.push_back({packing_options(data.packing) != nullptr, one_of({"data.separate_documents"}),
                   "has no effect with data.packing, whose own key `separate` says what texts in a row see"});
  return rules;
}

std::vector<Rule> rules_of(const LanguageModelConfig& task) {
  auto rules = rules_of_text(task.kind, task.data);
  rules.push_back({packing_options(task.data.packing) == nullptr, one_of({"task.loss"}),
                   "has no effect without data.packing: all windows are equally long"});
  return rules;
}

std::vector<Rule> rules_of(const MaskedLanguageModelConfig& task) { return rules_of_text(task.kind, task.data); }

std::vector<Rule> rules_of(const SequenceToSequenceConfig& task) {
  auto rules = rules_without_classes(task.kind);
  rules.push_back({synthetic_options(task.data.synthetic) != nullptr,
                   [](std::string_view key) { return is_in(key, "data") && !is_in(key, "data.synthetic"); },
                   "has no effect with data.synthetic: the program makes the pairs"});
  rules.push_back({synthetic_options(task.data.synthetic) != nullptr, one_of({"task.bucketing"}),
                   "has no effect with data.synthetic, whose pairs are equally long"});
  rules.push_back({task.data.path.has_value(), one_of({"data.corpus", "data.source_language", "data.target_language"}),
                   "has no effect with data.path: it is of the corpus"});
  rules.push_back({task.data.validation_path || !task.data.path, one_of({"data.validation_fraction"}),
                   "has no effect on these data, which bring a validation split"});
  return rules;
}

std::vector<Rule> rules_of(const SortConfig& task) { return rules_without_classes(task.kind); }

std::vector<Rule> rules_of(const CopyConfig& task) { return rules_without_classes(task.kind); }

std::vector<Rule> rules_of(const TransformerConfig& model) {
  return {
      {model.embedding.ngrams.order == 1, one_of({"model.embedding.ngrams.buckets"}),
       "has no effect with model.embedding.ngrams.order 1: there are no n-grams"},
      {has_regions(model.embedding), one_of({"model.embedding.ngrams", "model.embedding.scale"}),
       "has no meaning with model.embedding.region, which takes the place of the tokens' own embeddings"},
      {model.layers == 0,
       one_of({"model.heads", "model.same_length", "model.norm.position", "model.norm.final", "model.residual",
               "model.blocks", "model.feed_forward", "model.mixer"}),
       "has no effect with model.layers 0: there is no block"},
      {position_of(model.norm) == NormPosition::post, one_of({"model.norm.final"}),
       "has no effect with model.norm.position post"},
  };
}

std::vector<Rule> rules_of(const EncoderDecoderConfig& model) {
  auto rules = rules_of(static_cast<const TransformerConfig&>(model));
  rules.push_back(
      {true, one_of({"train.layer_rate_decay"}),
       "has no meaning for model encoder_decoder: it has two stacks of blocks, of which neither is on top of "
       "the other"});
  return rules;
}

std::vector<Rule> rules_of(const RecurrentConfig&) { return {}; }

std::vector<Rule> rules_of(const FeedForwardModelConfig&) { return {}; }

std::vector<Rule> rules_of(const LinearConfig&) {
  return {{true,
           one_of({"task.label_smoothing", "task.class_weights", "task.token_removal", "task.token_unknown",
                   "task.bucketing", "task.head", "task.baselines", "data.packing"}),
           "has no effect with model linear, which is no network and is fitted at once"}};
}

std::vector<Rule> rules_of(const TrainConfig& train) {
  return {{train.divergence.spikes.threshold == 0, one_of({"train.divergence.spikes.action"}),
           "has no effect with train.divergence.spikes.threshold 0: nothing is a spike"}};
}

// The only norm is that of a head, and it has the only bias terms that can be left out.
std::vector<Rule> rules_without_blocks(const ExperimentConfig& config) {
  const auto* model = std::get_if<TransformerConfig>(&config.model);
  const auto* task = std::get_if<ClassificationConfig>(&config.task);
  const bool has_none = model != nullptr && model->layers == 0 && task != nullptr;
  return {{has_none && !is<MeanPooledHeadConfig>(task->head), one_of({"model.norm", "model.bias"}),
           "has no effect with model.layers 0: there is no block, and task.head has no norm"}};
}

std::vector<Rule> rules_for(const ExperimentConfig& config) {
  auto rules = rules_of(config.train);
  for (auto& rule : rules_without_blocks(config)) rules.push_back(std::move(rule));
  const auto add = [&](const auto& options) {
    for (auto& rule : rules_of(options)) rules.push_back(std::move(rule));
  };
  std::visit(add, config.task);
  std::visit(add, config.model);
  return rules;
}

}  // namespace

std::optional<UnusedKey> find_unused_key(const ExperimentConfig& config) {
  std::vector<std::string> changed;
  list_keys(config_changes(config), "", changed);
  for (const auto& rule : rules_for(config))
    if (rule.holds)
      for (const auto& key : changed)
        if (rule.concerns(key)) return UnusedKey{key, rule.why};
  return std::nullopt;
}

}  // namespace metaformer
