#include "config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "config/changes.h"
#include "config/experiment_config.h"
#include "config/fail.h"
#include "config/train_config.h"
#include "config/yaml.h"

namespace metaformer {

// Keys of a config that are set and have no effect, because a key of another section says otherwise, or a number: they
// are mistakes. A key that its section's kind does not have is unknown, not unused.
struct UnusedKey {
  std::string key;
  std::string why;  // "has no effect with ..."
};

// The first of them, or nothing. A resolved config names every key, so only a key that differs from its kind's default
// counts.
std::optional<UnusedKey> find_unused_key(const ExperimentConfig& config);

// Rules between the keys of a model, and between them and those of other sections.

// Throws Error (exit code 2) for the first value at odds with another, with where it was set.
void check_model(const ExperimentConfig& config, const Provenance& provenance);

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

namespace {

void check_positions(const TransformerConfig& model, const Provenance& provenance,
                     const std::string& mixer_key = "model.mixer") {
  const auto kind = kind_of(model.positions);
  if (act_on_scores(model.positions) && !model.mixer->has_scores())
    fail(provenance, {"model.positions", "model.positions.kind", mixer_key, mixer_key + ".kind"},
         fmt::format("'{}' changes scores, and the mixer {} has none that it could change: set it to learned, "
                     "sinusoidal or none",
                     kind, model.mixer->kind()));
  const auto* rotary = std::get_if<RotaryPositionsConfig>(&model.positions);
  if (rotary != nullptr && rotary->rotated_width(model.head_width()) == 0)
    fail(provenance, {"model.positions.fraction", "model.positions.kind", "model.width", "model.heads"},
         fmt::format("{} of a head's {} features leaves no pair to rotate", rotary->fraction, model.head_width()));
  const auto* t5 = std::get_if<T5PositionsConfig>(&model.positions);
  if (t5 != nullptr && t5->max_distance <= t5->buckets / 2)
    fail(provenance, {"model.positions.max_distance", "model.positions.buckets"},
         fmt::format("{} must be above half of model.positions.buckets, {}", t5->max_distance, t5->buckets / 2));
  if (is<TransformerXlPositionsConfig>(model.positions) && model.width % 2 != 0)
    fail(provenance, {"model.width", "model.positions", "model.positions.kind"},
         fmt::format("{} is odd, and transformer_xl has a sine and a cosine for each frequency", model.width));
}

// Of models that go on from batch to batch.
void check_order(const ExperimentConfig& config, const Provenance& provenance) {
  if (tokens_before_segment(config.model) == 0) return;
  const std::string key(order_key(config.model));
  const auto* transformer = std::get_if<TransformerConfig>(&config.model);
  const auto value = transformer == nullptr ? "true" : std::to_string(transformer->memory);
  const auto off = fmt::format("{} to {}", key, transformer == nullptr ? "false" : "0");
  const auto* task = std::get_if<LanguageModelConfig>(&config.task);
  if (task == nullptr)
    fail(provenance, {key, "task.kind"},
         fmt::format("{} has no meaning for task {}: it is for texts that are read in order, as language_model does",
                     value, kind_of(config.task)));
  if (packing_options(task->data.packing) != nullptr)
    fail(provenance, {"data.packing", "data.packing.kind", key},
         fmt::format("'{}' puts texts in any order, and {} needs what was before them: set data.packing to none, or {}",
                     kind_of(task->data.packing), key, off));
  if (is<RandomEvaluationConfig>(config.train.evaluation))
    fail(provenance, {"train.evaluation", "train.evaluation.kind", key},
         "'random' batches have nothing before them to remember: set it to limited or whole");
  if (config.train.overfit_batch)
    fail(provenance, {"train.overfit_batch", key},
         fmt::format("true shows one batch again and again, and with {} a batch goes on from the one before it: set {}",
                     key, off));
}

void check_memory(const TransformerConfig& model, const Provenance& provenance) {
  if (model.same_length && model.memory == 0)
    fail(provenance, {"model.same_length", "model.memory"},
         "means nothing without model.memory: set it to false, or model.memory to a number of tokens");
  if (model.same_length && !model.mixer->has_scores())
    fail(provenance, {"model.same_length", "model.mixer", "model.mixer.kind"},
         fmt::format("has no effect on the mixer {}, which has no scores", model.mixer->kind()));
  if (model.memory > 0 && model.mixer->chooses_by_whole_sequence())
    fail(provenance, {"model.memory", "model.mixer", "model.mixer.kind"},
         fmt::format("the mixer {} takes no longer context: set it to 0", model.mixer->kind()));
}

void check_reversible_blocks(const TransformerConfig& model, const Provenance& provenance) {
  if (model.blocks != BlockKind::reversible) return;
  if (position_of(model.norm) == NormPosition::post)
    fail(
        provenance, {"model.blocks", "model.norm.position"},
        "'reversible' takes branches off again, which a norm behind their sum prevents: set model.norm.position to pre "
        "or both");
  if (!model.residual)
    fail(provenance, {"model.blocks", "model.residual"},
         "'reversible' is made of residual connections: set model.residual to true");
}

void check_regions(const TransformerConfig& model, const Provenance& provenance) {
  const auto* regions = sequence_regions(model.embedding);
  if (regions == nullptr) return;
  if (regions->shortest > regions->longest)
    fail(provenance, {"model.embedding.region.shortest", "model.embedding.region.longest"},
         fmt::format("{} is above model.embedding.region.longest {}", regions->shortest, regions->longest));
  if (model.width % regions->sizes() != 0)
    fail(provenance, {"model.width", "model.embedding.region.shortest", "model.embedding.region.longest"},
         fmt::format("{} cannot be divided equally among {} sizes of regions", model.width, regions->sizes()));
}

// Without blocks the head reads the embeddings.
void check_without_blocks(const TransformerConfig& model, const ExperimentConfig& config,
                          const Provenance& provenance) {
  const auto* task = std::get_if<ClassificationConfig>(&config.task);
  if (task == nullptr)
    fail(provenance, {"model.layers", "task.kind"},
         fmt::format("0 is for classification: a model of task {} needs blocks", kind_of(config.task)));
  if (is<FirstTokenHeadConfig>(task->head))
    fail(provenance, {"model.layers", "task.head", "task.head.kind"},
         "0 lets the class token see nothing of the text: set task.head to another kind, or model.layers to 1 or more");
  if (!is<NoPositionsConfig>(model.positions))
    fail(provenance, {"model.positions", "model.positions.kind", "model.layers"},
         fmt::format("'{}' says nothing with model.layers 0, where no token meets another: set it to none",
                     kind_of(model.positions)));
}

// What is at odds among the options of a mixer, which speak of model.mixer.
void check_mixer(const MixerConfig& mixer, const MixerShape& shape, const std::string& key,
                 const Provenance& provenance) {
  const std::string usual = "model.mixer";
  auto problem = mixer->problem(shape);
  if (!problem) return;
  for (auto& named : problem->keys)
    if (named.starts_with(usual)) named.replace(0, usual.size(), key);
  fail(provenance, problem->keys, problem->what);
}

void check_blocks(const TransformerConfig& model, const Provenance& provenance) {
  if (model.width % model.heads != 0)
    fail(provenance, {"model.heads", "model.width"},
         fmt::format("{} heads do not divide model.width {}", model.heads, model.width));
  if (model.hidden_width() < 1)
    fail(provenance, {"model.feed_forward.ratio", "model.width"},
         fmt::format("{} times model.width {} leaves no hidden unit",
                     std::visit([](const auto& options) { return options.ratio; }, model.feed_forward), model.width));
  check_positions(model, provenance);
  check_memory(model, provenance);
  check_reversible_blocks(model, provenance);
  check_mixer(model.mixer, model.mixer_shape(), "model.mixer", provenance);
}

void check(const TransformerConfig& model, const ExperimentConfig& config, const Provenance& provenance) {
  check_regions(model, provenance);
  if (model.layers == 0)
    check_without_blocks(model, config, provenance);
  else
    check_blocks(model, provenance);
}

void check(const EncoderDecoderConfig& model, const ExperimentConfig& config, const Provenance& provenance) {
  if (!is<SequenceToSequenceConfig>(config.task))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("encoder_decoder has no meaning for task {}: it is for sequence_to_sequence",
                     kind_of(config.task)));
  check_blocks(model, provenance);
  const auto encoder = model.encoder_blocks();
  check_positions(encoder, provenance, "model.encoder.mixer");
  check_mixer(encoder.mixer, encoder.mixer_shape(), "model.encoder.mixer", provenance);
  if (!model.cross_mixer->can_cross())
    fail(provenance, {"model.cross_mixer", "model.cross_mixer.kind"},
         fmt::format("{} with these options mixes a sequence with itself only: set it to scaled_dot_product, quadratic "
                     "(projected) or metric",
                     kind_of(model.cross_mixer)));
  check_mixer(model.cross_mixer, model.cross_shape(), "model.cross_mixer", provenance);
}

// Of models that predict a token from those before it, and nothing else.
void require_causal_task(const ExperimentConfig& config, const Provenance& provenance) {
  if (!is_causal(config.task))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("{} predicts tokens from those before them, and task {} needs a model that sees a whole text",
                     kind_of(config.model), kind_of(config.task)));
}

void check(const RecurrentConfig&, const ExperimentConfig& config, const Provenance& provenance) {
  require_causal_task(config, provenance);
}

void check(const FeedForwardModelConfig& model, const ExperimentConfig& config, const Provenance& provenance) {
  require_causal_task(config, provenance);
  if (!model.embedding.tie) return;
  if (model.hidden != model.width)
    fail(provenance, {"model.embedding.tie", "model.hidden", "model.width"},
         fmt::format("the output layer has the embeddings' matrix only where model.hidden, {}, is model.width, {}",
                     model.hidden, model.width));
}

void check(const LinearConfig&, const ExperimentConfig& config, const Provenance& provenance) {
  if (!is<ClassificationConfig>(config.task))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("linear has no meaning for task {}: it is for classification", kind_of(config.task)));
}

// Of networks.
template <class Model>
void check_embedding(const Model& model, const ExperimentConfig& config, const Provenance& provenance) {
  if constexpr (requires { model.embedding; })
    if (model.embedding.scale == EmbeddingScale::log_count_ratio && !is<ClassificationConfig>(config.task))
      fail(provenance, {"model.embedding.scale", "task.kind"},
           fmt::format("'log_count_ratio' has no meaning for task {}: set it to none or sqrt_width",
                       kind_of(config.task)));
}

}  // namespace

void check_model(const ExperimentConfig& config, const Provenance& provenance) {
  if (is<SequenceToSequenceConfig>(config.task) && !is<EncoderDecoderConfig>(config.model))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("{} sees one sequence, and task sequence_to_sequence has two: set it to encoder_decoder",
                     kind_of(config.model)));
  std::visit(
      [&](const auto& model) {
        check(model, config, provenance);
        check_embedding(model, config, provenance);
      },
      config.model);
  check_order(config, provenance);
}

std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance) {
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& key, const std::string& what) {
    warnings.push_back(fmt::format("{}: {}: {}", place_of(provenance, key), key, what));
  };
  if (is<LinearConfig>(config.model)) return {};
  const auto& train = config.train;
  if (const auto warmup = warmup_steps(train.schedule); train.steps <= warmup)
    warn("train.steps", fmt::format("{} is not above train.schedule.warmup_steps {}: all of the training is warm-up",
                                    train.steps, warmup));
  const auto tokens = most_batch_tokens(config);
  if (train.loss_chunks > tokens)
    warn("train.loss_chunks", fmt::format("{} is above the {} tokens of a batch", train.loss_chunks, tokens));
  const auto* transformer = blocks_of(config.model);
  if (const auto chunks = transformer == nullptr ? 1 : chunks_of(transformer->feed_forward); chunks > tokens)
    warn("model.feed_forward.chunks", fmt::format("{} is above the {} tokens of a batch", chunks, tokens));
  return warnings;
}

bool Range::contains(double value) const {
  if (!(std::abs(value) <= largest_number)) return false;  // nor is NaN in it
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string Range::str() const {
  std::string text;
  if (std::isfinite(low)) text += fmt::format("{} {}", low_open ? "above" : "at least", low);
  if (std::isfinite(high))
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", high_open ? "below" : "at most", high);
  return text.empty() ? "finite" : text;
}

namespace {

class RangeChecker {
 public:
  RangeChecker(std::string path, const Provenance& provenance) : path_(std::move(path)), provenance_(provenance) {}

  template <class T>
  void operator()(const char* name, T& value, const char*) {
    if constexpr (has_kinds<T>) {
      visit_kind(value, [&](auto& options) { descend(name, options); });
    } else if constexpr (requires(RangeChecker & c) { visit(c, value); }) {
      descend(name, value);
    }
  }
  template <class T>
  void operator()(const char* name, T& value, const Range& range, const char*) {
    if constexpr (std::is_arithmetic_v<T>) {
      check(name, static_cast<double>(value), range);
    } else if constexpr (is_optional<T>) {
      if (value) check(name, static_cast<double>(*value), range);
    } else {
      for (const auto element : value) check(name, element, range);
    }
  }

  template <class V, class Section>
  void section_of(const char* name, const char*, V& variant, const Section& section) {
    visit_section_of(variant, section, [&](auto& value) { descend(name, value); });
  }

 private:
  std::string full(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

  template <class T>
  void descend(const char* name, T& section) {
    RangeChecker inner(full(name), provenance_);
    visit(inner, section);
  }

  void check(const char* name, double value, const Range& range) const {
    if (range.contains(value)) return;
    const bool is_huge = std::abs(value) > largest_number && !std::isfinite(range.high);
    throw Error(ExitCode::usage,
                fmt::format("{}: {}: {} is out of range; must be {}{}", place_of(provenance_, full(name)), full(name),
                            value, range.str(), is_huge ? fmt::format(" and at most {}", largest_number) : ""));
  }

  std::string path_;
  const Provenance& provenance_;
};

void check_joiners(const std::string& joiners, const Provenance& provenance) {
  if (!std::all_of(joiners.begin(), joiners.end(), is_joiner))
    fail(provenance, {"data.tokenizer.joiners"},
         fmt::format("{} is not a list of ASCII marks such as \"'\" or \"'/-\"", in_quotes(joiners)));
}

void check_tokenizer(const TokenizerOptions& tokenizer, const Provenance& provenance) {
  if (const auto* words = std::get_if<WordTokenizerOptions>(&tokenizer)) check_joiners(words->joiners, provenance);
  const auto* pretrained = std::get_if<PretrainedTokenizerOptions>(&tokenizer);
  if (pretrained != nullptr && pretrained->path.empty())
    fail(provenance, {"data.tokenizer.path", "data.tokenizer.kind", "data.tokenizer"},
         "is missing: name the folder or file of the tokenizer");
}

void check_kept_spaces(const TokenizerOptions& tokenizer, const Provenance& provenance) {
  if (drops_whitespace(tokenizer))
    fail(provenance, {"data.tokenizer.whitespace", "data.tokenizer.kind", "task.kind"},
         fmt::format("a language model needs the spaces that {} leaves out: set it to kept", kind_of(tokenizer)));
}

void check_rating(const RatingConfig& rating, const Provenance& provenance) {
  for (const auto& [key, is_given] : {std::pair("data.rating.negative_to", rating.negative_to.has_value()),
                                      std::pair("data.rating.lowest", rating.lowest.has_value()),
                                      std::pair("data.rating.highest", rating.highest.has_value())})
    if (is_given && !rating.positive_from) fail(provenance, {key}, "means nothing without data.rating.positive_from");
  if (rating.lowest && *rating.lowest >= *rating.positive_from)
    fail(provenance, {"data.rating.lowest", "data.rating.positive_from"},
         fmt::format("{} is not below data.rating.positive_from {}", *rating.lowest, *rating.positive_from));
  if (rating.highest && *rating.highest < *rating.positive_from)
    fail(provenance, {"data.rating.highest", "data.rating.positive_from"},
         fmt::format("{} is below data.rating.positive_from {}", *rating.highest, *rating.positive_from));
  if (rating.negative_to && *rating.negative_to >= *rating.positive_from)
    fail(provenance, {"data.rating.negative_to", "data.rating.positive_from"},
         fmt::format("{} is not below data.rating.positive_from {}", *rating.negative_to, *rating.positive_from));
}

std::string_view task_of_corpus(std::string_view corpus) {
  return corpus == "imdb"       ? ClassificationConfig::kind
         : corpus == "multi30k" ? SequenceToSequenceConfig::kind
                                : LanguageModelConfig::kind;
}

// The default corpus is that of language models; to other tasks it means that there is none.
void check_corpus(const std::string& corpus, std::string_view task, const Provenance& provenance) {
  const std::vector<std::string> names(corpus_names.begin(), corpus_names.end());
  if (std::find(names.begin(), names.end(), corpus) == names.end())
    fail(provenance, {"data.corpus"},
         fmt::format("unknown corpus {}; expected {}{}", in_quotes(corpus), join_alternatives(names),
                     did_you_mean(corpus, names)));
  if (corpus != DataConfig().corpus && task_of_corpus(corpus) != task)
    fail(provenance, {"data.corpus", "task.kind"}, fmt::format("'{}' is for task {}", corpus, task_of_corpus(corpus)));
}

// Of a classifier's texts.
void check_packing(const ClassificationConfig& task, const Provenance& provenance) {
  const auto* packing = packing_options(task.data.packing);
  if (packing == nullptr) return;
  if (!packing->separate)
    fail(provenance, {"data.packing.separate", "task.kind"},
         "false is for language models: the class of a text does not depend on what else is in its row");
  if (task.bucketing > 1)
    fail(provenance, {"data.packing", "data.packing.kind", "task.bucketing"},
         fmt::format("'{}' leaves nothing to sort by length: set task.bucketing to 1", kind_of(task.data.packing)));
  if (const auto* unigram = std::get_if<UnigramTokenizerOptions>(&task.data.tokenizer);
      unigram != nullptr && unigram->sampling > 0)
    fail(provenance, {"data.packing", "data.packing.kind", "data.tokenizer.sampling"},
         fmt::format("'{}' needs the lengths of texts, which data.tokenizer.sampling draws anew: set that to 0",
                     kind_of(task.data.packing)));
}

// Of a language model's text, masked or not.
void check_text(const TextDataConfig& data, const Provenance& provenance) {
  if (data.format == TableFormat::csv || data.format == TableFormat::tsv)
    fail(provenance, {"data.format", "task.kind"},
         fmt::format("a language model reads text or jsonl, not {}, which is for tables with labels",
                     to_string(data.format)));
  check_tokenizer(data.tokenizer, provenance);
  const auto* unigram = std::get_if<UnigramTokenizerOptions>(&data.tokenizer);
  if (unigram != nullptr && unigram->sampling > 0)
    fail(provenance, {"data.tokenizer.sampling", "task.kind"},
         fmt::format("{} has no effect on a language model, whose text is tokenized once: set it to 0",
                     unigram->sampling));
  check_corpus(data.corpus, LanguageModelConfig::kind, provenance);
}

void check_task(const LanguageModelConfig& task, const ExperimentConfig&, const Provenance& provenance) {
  check_text(task.data, provenance);
  check_kept_spaces(task.data.tokenizer, provenance);
}

void check_task(const MaskedLanguageModelConfig& task, const ExperimentConfig&, const Provenance& provenance) {
  if (task.masked + task.random > 1)
    fail(provenance, {"task.masked", "task.random"},
         fmt::format("{} and task.random {} together are above 1", task.masked, task.random));
  if (task.whole_words && !cuts_words(task.data.tokenizer))
    fail(provenance, {"task.whole_words", "data.tokenizer.kind"},
         fmt::format("true has no effect with data.tokenizer {}, none of whose tokens goes on with the word of the one "
                     "before it: set it to false",
                     kind_of(task.data.tokenizer)));
  check_text(task.data, provenance);
}

// A slice would need gradients of whole tables, of which a batch reads few rows.
void check_slices(const ClassificationConfig& task, const ExperimentConfig& config, const Provenance& provenance) {
  const auto* model = std::get_if<TransformerConfig>(&config.model);
  if (config.train.cpu_slices == 1 || model == nullptr) return;
  if (has_regions(model->embedding))
    fail(provenance, {"train.cpu_slices", "model.embedding.region", "model.embedding.region.kind"},
         fmt::format("{} cannot be had with model.embedding.region, whose tables are too large to have gradients for "
                     "each slice: set it to 1",
                     config.train.cpu_slices));
  if (bag_options(task.head) != nullptr)
    fail(provenance, {"train.cpu_slices", "task.head.bag", "task.head.bag.kind"},
         fmt::format("{} cannot be had with task.head.bag, whose table is too large to have gradients for each slice: "
                     "set it to 1",
                     config.train.cpu_slices));
}

void check_task(const SequenceToSequenceConfig& task, const ExperimentConfig& config, const Provenance& provenance) {
  const auto& data = task.data;
  if (const auto context = context_of(config.model);
      task.batch_unit == BatchUnit::token && config.train.batch_size < context)
    fail(provenance, {"train.batch_size", "task.batch_unit"},
         fmt::format("{} tokens are fewer than a text can have: set it to model.context {} or more",
                     config.train.batch_size, context));
  if (const auto* pairs = synthetic_options(data.synthetic)) {
    if (context_of(config.model) <= pairs->length)
      fail(provenance, {"model.context", "data.synthetic.length"},
           fmt::format("{} does not hold {} symbols and a mark: set it to {} or more", context_of(config.model),
                       pairs->length, pairs->length + 1));
    return;
  }
  check_tokenizer(data.tokenizer, provenance);
  if (const auto* unigram = std::get_if<UnigramTokenizerOptions>(&data.tokenizer);
      unigram != nullptr && unigram->sampling > 0)
    fail(provenance, {"data.tokenizer.sampling", "task.kind"},
         fmt::format("{} has no effect on pairs of texts, which are tokenized once: set it to 0", unigram->sampling));
  check_corpus(data.corpus, SequenceToSequenceConfig::kind, provenance);
}

void check_task(const ClassificationConfig& task, const ExperimentConfig& config, const Provenance& provenance) {
  if (task.data.format == TableFormat::text)
    fail(provenance, {"data.format", "task.kind"}, "'text' has no labels: classification reads csv, tsv or jsonl");
  check_tokenizer(task.data.tokenizer, provenance);
  check_corpus(task.data.corpus, ClassificationConfig::kind, provenance);
  check_rating(task.data.rating, provenance);
  check_packing(task, provenance);
  check_slices(task, config, provenance);
  if (task.token_removal + task.token_unknown >= 1)
    fail(
        provenance, {"task.token_removal", "task.token_unknown"},
        fmt::format("{} and task.token_unknown {} together must stay below 1", task.token_removal, task.token_unknown));
}

// Of lists.
template <class Lists>
void check_task(const Lists& task, const ExperimentConfig& config, const Provenance& provenance) {
  const auto lists = *list_task(task);
  const auto context = context_of(config.model), needed = lists.row_length();
  if (context < needed)
    fail(provenance, {"model.context", "task.length"},
         fmt::format("{} is too short: a list of {} and its {}copy take {}, so set it to that or more", context,
                     task.length, lists.copies ? "" : "sorted ", needed));
}

void check_schedule(const FallingScheduleConfig& schedule, const TrainConfig& train, const Provenance& provenance) {
  if (schedule.floor > train.learning_rate)
    fail(provenance, {"train.schedule.floor", "train.learning_rate"},
         fmt::format("{} is above train.learning_rate {}", schedule.floor, train.learning_rate));
}

// Schedules without a floor.
template <class Schedule>
void check_schedule(const Schedule&, const TrainConfig&,
                    const Provenance&) requires(!std::is_base_of_v<FallingScheduleConfig, Schedule>) {}

void check_rate_factors(const TrainConfig& train, const Provenance& provenance) {
  for (const auto& entry : train.rate_factors)
    if (!parse_rate_factor(entry))
      fail(provenance, {"train.rate_factors"},
           fmt::format("{} is not PARAMETER=FACTOR with a finite factor above 0, as mixer.projection=0.3",
                       in_quotes(entry)));
}

}  // namespace

void check_config(const ExperimentConfig& config, const Provenance& provenance) {
  auto copy = config;  // visiting takes a mutable struct
  RangeChecker checker("", provenance);
  visit(checker, copy);
  check_model(config, provenance);
  std::visit([&](const auto& task) { check_task(task, config, provenance); }, config.task);
  std::visit([&](const auto& schedule) { check_schedule(schedule, config.train, provenance); }, config.train.schedule);
  check_rate_factors(config.train, provenance);
  if (const auto unused = find_unused_key(config)) fail(provenance, {unused->key}, unused->why);
}

}  // namespace metaformer
