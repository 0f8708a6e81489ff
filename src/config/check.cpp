#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "base/text.h"
#include "config/loader.h"
#include "config/writer.h"

namespace metaformer {

namespace {

// A config that is checked.
struct Checked {
  const ExperimentConfig& config;
  const Provenance& provenance;
  const TaskConfig& task = config.task;
  const ModelConfig& model = config.model;
  const TrainConfig& train = config.train;

  // Where a source has set the key or its kind; nullptr if none has.
  const Location* place_of(const std::string& key) const {
    for (const auto& name : {key, key + ".kind"})
      if (const auto found = provenance.find(name); found != provenance.end()) return &found->second;
    return nullptr;
  }

  // Throws Error (exit code 2): "PLACE: KEY: what". KEY is the first of the keys, PLACE is that of the first key that a
  // source has set.
  template <class... Values>
  [[noreturn]] void fail(const std::vector<std::string>& keys, fmt::format_string<const Values&...> what,
                         const Values&... values) const {
    const Location* place = nullptr;
    for (const auto& key : keys)
      if (place == nullptr) place = place_of(key);
    fail_at(place == nullptr ? Location{} : *place, "{}: {}", keys.front(), fmt::format(what, values...));
  }

  template <class... Values>
  void refuse(bool holds, const std::vector<std::string>& keys, fmt::format_string<const Values&...> what,
              const Values&... values) const {
    if (holds) fail(keys, what, values...);
  }
};

// Whether `key` is `section` or lies in it.
bool is_in(std::string_view key, std::string_view section) {
  return key.starts_with(section) && (key.size() == section.size() || key[section.size()] == '.');
}

// If `holds`, keys of `sections` have no effect, because of a kind or a number elsewhere in the config. Setting one is
// an error. Keys that a section's kind does not have are no such keys: they are unknown.
struct Rule {
  bool holds;
  std::string_view sections;  // separated by spaces
  std::string why;
  std::string_view except = {};  // a section within `sections` that has an effect

  bool concerns(std::string_view key) const {
    return !is_in(key, except) && std::ranges::any_of(sections | std::views::split(' '), [&](const auto& section) {
      return is_in(key, {section.begin(), section.end()});
    });
  }
};

std::vector<Rule> rules_of_task(const TaskConfig& task) {
  const auto* classifier = std::get_if<ClassificationConfig>(&task);
  const auto* text = text_data_of(task);
  const auto* pairs = std::get_if<SequenceToSequenceConfig>(&task);
  const auto* recalled = std::get_if<InContextRecallConfig>(&task);
  const auto corpus = classifier == nullptr ? DataConfig().corpus : classifier->data.corpus;
  const bool is_named = corpus != DataConfig().corpus;
  const bool packs = text != nullptr && packing_options(text->packing) != nullptr;
  const bool synthetic = pairs != nullptr && synthetic_options(pairs->data.synthetic) != nullptr;
  const auto of_corpus = "has no effect with data.corpus " + corpus;
  return {{classifier != nullptr, "model.embedding.tie train.loss_chunks",
           "has no meaning for task classification: leave it out"},
          {is_named, "data.validation_path data.test_path", of_corpus + ", which brings its own splits"},
          {is_named && !classifier->data.extra_path,
           "data.format data.header data.text_field data.label_field data.rating", of_corpus + ": it is for tables"},
          {classifier == nullptr, "model.embedding.ngrams model.embedding.region",
           fmt::format("has no meaning for task {}", kind_of(task))},
          {text != nullptr && !text->mixture.empty(),
           "data.corpus data.path data.validation_path data.validation_fraction data.format data.text_field "
           "data.malformed_limit data.packing data.tokenizer",
           "has no effect with data.mixture, whose folders have tokens already: leave it out"},
          {packs, "data.separate_documents",
           "has no effect with data.packing, whose own key `separate` says what texts in a row see"},
          {recalled != nullptr && recalled->noise == 0, "task.noise_vocabulary", "has no effect with task.noise 0"},
          {is<LanguageModelConfig>(task) && !packs, "task.loss",
           "has no effect without data.packing: all windows are equally long"},
          {synthetic, "data", "has no effect with data.synthetic: the program makes the pairs", "data.synthetic"},
          {synthetic, "task.bucketing", "has no effect with data.synthetic, whose pairs are equally long"},
          {pairs != nullptr && pairs->data.path, "data.corpus data.source_language data.target_language",
           "has no effect with data.path, which replaces the named corpus"},
          {pairs != nullptr && (pairs->data.validation_path || !pairs->data.path), "data.validation_fraction",
           "has no effect on these data, which bring a validation split"}};
}

std::vector<Rule> rules_of_model(const ModelConfig& model) {
  if (is<LinearConfig>(model))
    return {{true,
             "task.label_smoothing task.class_weights task.token_removal task.token_unknown task.bucketing task.head "
             "task.baselines data.packing",
             "has no effect with model linear, which is no network and is fitted at once"}};
  const auto* blocks = blocks_of(model);
  if (blocks == nullptr) return {};
  return {{blocks->embedding.ngrams.order == 1, "model.embedding.ngrams.buckets",
           "has no effect with model.embedding.ngrams.order 1: there are no n-grams"},
          {has_regions(blocks->embedding), "model.embedding.ngrams model.embedding.scale",
           "has no meaning with model.embedding.region, which takes the place of the tokens' own embeddings"},
          {blocks->layers == 0,
           "model.heads model.same_length model.convolution model.norm.position model.norm.final model.residual "
           "model.blocks model.feed_forward model.mixer",
           "has no effect with model.layers 0: there is no block"},
          {position_of(blocks->norm) == NormPosition::post, "model.norm.final",
           "has no effect with model.norm.position post"},
          {is<EncoderDecoderConfig>(model), "train.layer_rate_decay",
           "has no meaning for model encoder_decoder, which has two stacks of blocks"}};
}

// A resolved config names every key, so only a key that differs from its kind's default counts.
void check_unused_keys(const Checked& checked) {
  const auto* model = std::get_if<TransformerConfig>(&checked.model);
  const auto* task = std::get_if<ClassificationConfig>(&checked.task);
  // Without blocks the only norm is that of the head mean_pooled, which also has the only bias terms that can be left
  // out.
  const bool has_no_norm =
      model != nullptr && model->layers == 0 && task != nullptr && !is<MeanPooledHeadConfig>(task->head);
  const std::vector<Rule> rules = {
      {checked.train.divergence.spikes.threshold == 0, "train.divergence.spikes.action",
       "has no effect with train.divergence.spikes.threshold 0: nothing is a spike"},
      {checked.train.lora.rank == 0, "train.lora", "has no effect with train.lora.rank 0: there are no adapters"},
      {has_no_norm, "model.norm model.bias",
       "has no effect with model.layers 0: there is no block, and task.head has no norm"}};
  const auto changed = flattened(config_changes(checked.config));
  for (const auto& group : {rules, rules_of_task(checked.task), rules_of_model(checked.model)})
    for (const auto& rule : group)
      for (const auto& [key, value] : changed)
        if (rule.holds && rule.concerns(key)) checked.fail({key}, "{}", rule.why);
}

// All layers share one table of distances, so their keys must have the same width.
void check_key_widths(const TransformerConfig& model, const std::string& mixer_key, const Checked& checked) {
  std::optional<std::int64_t> first;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const auto& mixer = model.mixer_of(layer);
    if (!has_scores(mixer)) continue;
    const auto width = key_width(mixer, model.mixer_shape());
    checked.refuse(first.value_or(width) != width, {mixer_key, "model.positions"},
                   "keys of {} and of {} features cannot share the vectors of positions transformer_xl: set "
                   "model.positions to another kind",
                   first.value_or(width), width);
    first = width;
  }
}

void check_positions(const TransformerConfig& model, const Checked& checked,
                     const std::string& mixer_key = "model.mixer") {
  checked.refuse(
      act_on_scores(model.positions) && !model.any_mixer(has_scores), {"model.positions", mixer_key},
      "'{}' changes scores, and the mixer {} has none that it could change: set it to learned, sinusoidal or none",
      kind_of(model.positions), model.mixer_names());
  if (is<TransformerXlPositionsConfig>(model.positions)) check_key_widths(model, mixer_key, checked);
  const auto* rotary = std::get_if<RotaryPositionsConfig>(&model.positions);
  if (rotary != nullptr && rotary->rotated_width(model.head_width()) == 0)
    checked.fail({"model.positions.fraction", "model.positions", "model.width", "model.heads"},
                 "{} of a head's {} features leaves no pair to rotate", rotary->fraction, model.head_width());
  const auto* t5 = std::get_if<T5PositionsConfig>(&model.positions);
  if (t5 != nullptr && t5->max_distance <= t5->buckets / 2)
    checked.fail({"model.positions.max_distance", "model.positions.buckets"},
                 "{} must be above half of model.positions.buckets, {}", t5->max_distance, t5->buckets / 2);
  checked.refuse(is<TransformerXlPositionsConfig>(model.positions) && model.width % 2 != 0,
                 {"model.width", "model.positions"},
                 "{} is odd, and transformer_xl has a sine and a cosine for each frequency", model.width);
}

// Checks a model that continues from batch to batch.
void check_order(const Checked& checked) {
  if (tokens_before_segment(checked.model) == 0) return;
  const std::string key(order_key(checked.model));
  const auto* transformer = std::get_if<TransformerConfig>(&checked.model);
  const auto off = fmt::format("{} to {}", key, transformer == nullptr ? "false" : "0");
  const auto* task = std::get_if<LanguageModelConfig>(&checked.task);
  if (task == nullptr)
    checked.fail({key, "task.kind"},
                 "{} has no meaning for task {}: it is for texts that are read in order, as language_model does",
                 transformer == nullptr ? "true" : std::to_string(transformer->memory), kind_of(checked.task));
  if (packing_options(task->data.packing) != nullptr)
    checked.fail({"data.packing", key},
                 "'{}' puts texts in any order, and {} needs what was before them: set data.packing to none, or {}",
                 kind_of(task->data.packing), key, off);
  checked.refuse(is<RandomEvaluationConfig>(checked.train.evaluation), {"train.evaluation", key},
                 "'random' batches have nothing before them to remember: set it to limited or whole");
  checked.refuse(checked.train.overfit_batch, {"train.overfit_batch", key},
                 "true repeats one batch, and with {} a batch continues the one before it: set {}", key, off);
}

// The fused kernels lack values of their own in 32 bits for wide heads (cuda/metric_attention.h).
void check_fused_values(const MixerConfig& mixer, const MixerShape& shape, const std::string& key,
                        const Checked& checked) {
  constexpr std::int64_t widest = 96;
  const auto precision = checked.train.precision;
  const bool has_own_values = std::visit(
      [](const auto& options) {
        if constexpr (requires { options.values; }) return options.values != MixerValues::shared;
        return false;
      },
      mixer);
  checked.refuse(backend_of(mixer) == Backend::fused && has_own_values && shape.head_width() > widest &&
                     (precision == Precision::fp32 || precision == Precision::tf32),
                 {key + ".backend", key + ".values", "train.precision", "model.width", "model.heads"},
                 "in {} 'fused' has values of their own for heads up to {} wide, not {}: set it to auto or composed, "
                 "train.precision to bf16 or fp16, or values to shared",
                 to_string(precision), widest, shape.head_width());
}

// Checks the options of a mixer. A problem names keys of model.mixer, which `key` replaces.
void check_mixer(const MixerConfig& mixer, const MixerShape& shape, const std::string& key, const Checked& checked) {
  const std::string usual = "model.mixer";
  auto problem = problem_of(mixer, shape);
  if (!problem) return check_fused_values(mixer, shape, key, checked);
  for (auto& named : problem->keys)
    if (named.starts_with(usual)) named.replace(0, usual.size(), key);
  checked.fail(problem->keys, "{}", problem->what);
}

// `key`: the key of the mixer, or of the list of mixers.
void check_mixers(const TransformerConfig& model, bool is_causal, const std::string& key, const Checked& checked) {
  const bool crosses = is<EncoderDecoderConfig>(checked.model) && is_causal;  // blocks have a cross mixer, too
  const auto check_one = [&](const MixerConfig& mixer, const std::string& its_key) {
    check_mixer(mixer, model.mixer_shape(), its_key, checked);
    checked.refuse(is_causal && !can_be_causal(mixer), {its_key, "task.kind"},
                   "{} mixes a token with those behind it, too: it is for classification, masked_language_model and "
                   "encoders",
                   kind_of(mixer));
    checked.refuse(is_causal && reads_forwards(mixer), {its_key + ".direction", "task.kind"},
                   "has no effect with task {}: the tokens of these blocks see none behind them",
                   kind_of(checked.task));
    checked.refuse(is<NoneOptions>(mixer) && !crosses && !model.has_feed_forward(), {its_key, "model.feed_forward"},
                   "a block without a mixer and without a feed-forward branch does nothing: set one of them");
    checked.refuse(is<NoneOptions>(mixer) && model.convolution > 0, {"model.convolution", its_key},
                   "has no effect on the mixer none, which reads nothing: set it to 0");
  };
  if (model.mixers.empty()) return check_one(model.mixer, key);
  const auto layers_key = key.substr(0, key.rfind('.')) + ".layers";
  std::int64_t layers = 0;
  for (std::size_t i = 0; i < model.mixers.size(); ++i) {
    const auto place = fmt::format("{}.{}", key, i);
    check_one(model.mixers[i].mixer, place + ".mixer");
    layers += model.mixers[i].layers;
    checked.refuse(layers > model.layers, {place + ".layers", place + ".mixer", layers_key},
                   "the mixers up to this one need {} blocks, and there are {}: shorten the list, or raise {}", layers,
                   model.layers, layers_key);
  }
}

void check_blocks(const TransformerConfig& model, const Checked& checked) {
  checked.refuse(model.width % model.heads != 0, {"model.heads", "model.width"},
                 "{} heads do not divide model.width {}", model.heads, model.width);
  if (const auto* mlp = std::get_if<MlpConfig>(&model.feed_forward); mlp != nullptr && model.hidden_width() < 1)
    checked.fail({"model.feed_forward.ratio", "model.width"}, "{} times model.width {} leaves no hidden unit",
                 mlp->ratio, model.width);
  check_positions(model, checked);
  checked.refuse(model.same_length && model.memory == 0, {"model.same_length", "model.memory"},
                 "means nothing without model.memory: set it to false, or model.memory to a number of tokens");
  checked.refuse(model.same_length && !model.any_mixer(has_scores), {"model.same_length", "model.mixer"},
                 "has no effect on the mixer {}, which has no scores", model.mixer_names());
  const auto takes_no_longer_context = [](const MixerConfig& mixer) { return !takes_longer_context(mixer); };
  checked.refuse(model.memory > 0 && model.any_mixer(takes_no_longer_context), {"model.memory", "model.mixer"},
                 "the mixer {} cannot see more than model.context tokens: set it to 0", model.mixer_names());
  const auto keeps_vectors = [](const MixerConfig& mixer) { return !carries_state(mixer); };
  checked.refuse(model.memory > 0 && model.convolution > 0 && model.any_mixer(keeps_vectors),
                 {"model.convolution", "model.memory", "model.mixer"},
                 "needs the tokens before model.memory, which only mixers with a state keep: set one of them to 0");
  const bool reversible = model.blocks == BlockKind::reversible;
  checked.refuse(
      reversible && model.any_mixer([](const MixerConfig& mixer) { return is<Rwkv7Options>(mixer); }),
      {"model.blocks", "model.mixer"},
      "'reversible' computes one block at a time again, and blocks of rwkv7 need the values of the first: set "
      "it to plain");
  checked.refuse(reversible && model.memory > 0 && model.any_mixer(carries_state),
                 {"model.memory", "model.blocks", "model.mixer"},
                 "reversible blocks are recomputed after the mixer {} has changed its initial state: set model.memory "
                 "to 0, or model.blocks to plain",
                 model.mixer_names());
  checked.refuse(reversible && !model.has_feed_forward(), {"model.blocks", "model.feed_forward"},
                 "'reversible' has a stream for each of two branches: set model.feed_forward to mlp or gated, or "
                 "model.blocks to plain");
  checked.refuse(reversible && position_of(model.norm) == NormPosition::post, {"model.blocks", "model.norm.position"},
                 "'reversible' subtracts each branch again, which a norm of the sum prevents: set "
                 "model.norm.position to pre or both");
  checked.refuse(reversible && !model.residual, {"model.blocks", "model.residual"},
                 "'reversible' is made of residual connections: set model.residual to true");
  const bool decodes = is_causal(checked.task) || is<EncoderDecoderConfig>(checked.model);
  check_mixers(model, decodes, "model.mixer", checked);
}

void check_regions(const TransformerConfig& model, const Checked& checked) {
  const auto* regions = sequence_regions(model.embedding);
  if (regions == nullptr) return;
  if (regions->shortest > regions->longest)
    checked.fail({"model.embedding.region.shortest", "model.embedding.region.longest"},
                 "{} is above model.embedding.region.longest {}", regions->shortest, regions->longest);
  if (model.width % regions->sizes() != 0)
    checked.fail({"model.width", "model.embedding.region.shortest", "model.embedding.region.longest"},
                 "{} cannot be divided equally among {} sizes of regions", model.width, regions->sizes());
}

void check(const TransformerConfig& model, const Checked& checked) {
  check_regions(model, checked);
  if (model.layers > 0) return check_blocks(model, checked);
  // Without blocks the head reads the embeddings.
  const auto* task = std::get_if<ClassificationConfig>(&checked.task);
  checked.refuse(task == nullptr, {"model.layers", "task.kind"},
                 "0 is for classification: a model of task {} needs blocks", kind_of(checked.task));
  if (is<FirstTokenHeadConfig>(task->head))
    checked.fail(
        {"model.layers", "task.head"},
        "0 lets the class token see nothing of the text: set task.head to another kind, or model.layers to 1 or more");
  checked.refuse(!is<NoPositionsConfig>(model.positions), {"model.positions", "model.layers"},
                 "'{}' has no effect with model.layers 0, where no token sees another: set it to none",
                 kind_of(model.positions));
}

void check(const EncoderDecoderConfig& model, const Checked& checked) {
  checked.refuse(!is<SequenceToSequenceConfig>(checked.task), {"model.kind", "task.kind"},
                 "encoder_decoder has no meaning for task {}: it is for sequence_to_sequence", kind_of(checked.task));
  check_blocks(model, checked);
  const auto encoder = model.encoder_blocks();
  check_positions(encoder, checked, "model.encoder.mixer");
  check_mixers(encoder, /*is_causal=*/false, "model.encoder.mixer", checked);
  const bool can_cross = std::visit([](const auto& options) { return options.can_cross(); }, model.cross_mixer);
  checked.refuse(!can_cross, {"model.cross_mixer"},
                 "{} with these options mixes a sequence with itself only: set it to scaled_dot_product, "
                 "differential, quadratic (projected) or metric",
                 kind_of(model.cross_mixer));
  check_mixer(model.cross_mixer, model.cross_shape(), "model.cross_mixer", checked);
}

// Checks a model that can only predict a token from those before it.
template <class Model>
void check(const Model& model, const Checked& checked) {
  checked.refuse(!is_causal(checked.task), {"model.kind", "task.kind"},
                 "{} predicts tokens from those before them, and task {} needs a model that sees a whole text",
                 Model::kind, kind_of(checked.task));
  if constexpr (std::is_same_v<Model, FeedForwardModelConfig>)
    if (model.embedding.tie && model.hidden != model.width)
      checked.fail({"model.embedding.tie", "model.hidden", "model.width"},
                   "the output layer has the embeddings' matrix only where model.hidden, {}, is model.width, {}",
                   model.hidden, model.width);
}

void check(const LinearConfig&, const Checked& checked) {
  checked.refuse(!is<ClassificationConfig>(checked.task), {"model.kind", "task.kind"},
                 "linear has no meaning for task {}: it is for classification", kind_of(checked.task));
}

void check_model(const Checked& checked) {
  const auto& task = checked.task;
  checked.refuse(
      is<SequenceToSequenceConfig>(task) && !is<EncoderDecoderConfig>(checked.model), {"model.kind", "task.kind"},
      "{} sees one sequence, and task sequence_to_sequence has two: set it to encoder_decoder", kind_of(checked.model));
  std::visit(
      [&](const auto& model) {
        check(model, checked);
        if constexpr (requires { model.embedding; })
          if (model.embedding.scale == EmbeddingScale::log_count_ratio && !is<ClassificationConfig>(task))
            checked.fail({"model.embedding.scale", "task.kind"},
                         "'log_count_ratio' has no meaning for task {}: set it to none or sqrt_width", kind_of(task));
      },
      checked.model);
  check_order(checked);
}

void check_ranges(const Checked& checked) {
  auto copy = checked.config;  // rows_of needs a mutable config
  for (const auto& [path, field] : rows_of(copy)) {
    if (!field.range) continue;
    const auto given = json_value(field);
    for (const auto& number : given.is_array() ? given : nlohmann::ordered_json::array({given})) {
      if (number.is_null() || field.range->contains(number.get<double>())) continue;
      const auto value = number.get<double>();
      const bool is_huge = std::abs(value) > largest_number && !std::isfinite(field.range->high);
      checked.fail({path}, "{} is out of range; must be {}{}", value, field.range->str(),
                   is_huge ? fmt::format(" and at most {}", largest_number) : "");
    }
  }
}

void check_tokenizer(const TokenizerOptions& tokenizer, const Checked& checked) {
  const auto* words = std::get_if<WordTokenizerOptions>(&tokenizer);
  if (words != nullptr && !std::ranges::all_of(words->joiners, is_joiner))
    checked.fail({"data.tokenizer.joiners"}, "{} is not a list of ASCII marks such as \"'\" or \"'/-\"",
                 in_quotes(words->joiners));
  const auto* pretrained = std::get_if<PretrainedTokenizerOptions>(&tokenizer);
  if (pretrained != nullptr && pretrained->path.empty())
    checked.fail({"data.tokenizer.path", "data.tokenizer"}, "is missing: name the folder or file of the tokenizer");
}

double sampling_of(const TokenizerOptions& tokenizer) {
  const auto* unigram = std::get_if<UnigramTokenizerOptions>(&tokenizer);
  return unigram != nullptr ? unigram->sampling : 0;
}

// `texts`: texts that are tokenized only once.
void check_no_sampling(const TokenizerOptions& tokenizer, const char* texts, const Checked& checked) {
  if (const auto sampling = sampling_of(tokenizer); sampling > 0)
    checked.fail({"data.tokenizer.sampling", "task.kind"}, "{} has no effect on {} tokenized once: set it to 0",
                 sampling, texts);
}

void check_rating(const RatingConfig& rating, const Checked& checked) {
  const auto& from = rating.positive_from;
  const auto check = [&](const std::string& key, const std::optional<double>& value, bool may_be_equal) {
    checked.refuse(value && !from, {key}, "means nothing without data.rating.positive_from");
    if (value && (may_be_equal ? *value < *from : *value >= *from))
      checked.fail({key, "data.rating.positive_from"}, "{} is {}below data.rating.positive_from {}", *value,
                   may_be_equal ? "" : "not ", *from);
  };
  check("data.rating.negative_to", rating.negative_to, false);
  check("data.rating.lowest", rating.lowest, false);
  check("data.rating.highest", rating.highest, true);
}

std::string_view task_of_corpus(std::string_view corpus) {
  return corpus == "imdb"       ? ClassificationConfig::kind
         : corpus == "multi30k" ? SequenceToSequenceConfig::kind
                                : LanguageModelConfig::kind;
}

// The default corpus is one for language models; for other tasks it means that no corpus is named.
void check_corpus(const std::string& corpus, std::string_view task, const Checked& checked) {
  const std::vector<std::string> names(corpus_names.begin(), corpus_names.end());
  checked.refuse(std::ranges::find(names, corpus) == names.end(), {"data.corpus"}, "unknown corpus {}; expected {}{}",
                 in_quotes(corpus), join_alternatives(names), did_you_mean(corpus, names));
  checked.refuse(corpus != DataConfig().corpus && task_of_corpus(corpus) != task, {"data.corpus", "task.kind"},
                 "'{}' is for task {}", corpus, task_of_corpus(corpus));
}

// Checks the text of a language model, masked or not.
void check_text(const TextDataConfig& data, const Checked& checked) {
  checked.refuse(data.format == TableFormat::csv || data.format == TableFormat::tsv, {"data.format", "task.kind"},
                 "a language model reads text or jsonl, not {}, which is for tables with labels",
                 to_string(data.format));
  check_tokenizer(data.tokenizer, checked);
  check_no_sampling(data.tokenizer, "a language model, whose text is", checked);
  check_corpus(data.corpus, LanguageModelConfig::kind, checked);
}

void check_task(const LanguageModelConfig& task, const Checked& checked) {
  check_text(task.data, checked);
  checked.refuse(drops_whitespace(task.data.tokenizer), {"data.tokenizer.whitespace", "data.tokenizer", "task.kind"},
                 "a language model needs the spaces that {} leaves out: set it to kept", kind_of(task.data.tokenizer));
}

void check_task(const MaskedLanguageModelConfig& task, const Checked& checked) {
  checked.refuse(task.masked + task.random > 1, {"task.masked", "task.random"},
                 "{} and task.random {} together are above 1", task.masked, task.random);
  checked.refuse(task.whole_words && !cuts_words(task.data.tokenizer), {"task.whole_words", "data.tokenizer"},
                 "true needs a subword tokenizer; to data.tokenizer {} each token is a word: set it to false",
                 kind_of(task.data.tokenizer));
  check_text(task.data, checked);
}

void check_task(const SequenceToSequenceConfig& task, const Checked& checked) {
  const auto& data = task.data;
  const auto context = context_of(checked.model), batch_size = checked.train.batch_size;
  checked.refuse(task.batch_unit == BatchUnit::token && batch_size < context, {"train.batch_size", "task.batch_unit"},
                 "{} tokens are fewer than a text can have: set it to model.context {} or more", batch_size, context);
  if (const auto* pairs = synthetic_options(data.synthetic)) {
    if (context <= pairs->length)
      checked.fail({"model.context", "data.synthetic.length"},
                   "{} does not hold {} symbols and a mark: set it to {} or more", context, pairs->length,
                   pairs->length + 1);
    return;
  }
  check_tokenizer(data.tokenizer, checked);
  check_no_sampling(data.tokenizer, "pairs of texts, which are", checked);
  check_corpus(data.corpus, SequenceToSequenceConfig::kind, checked);
}

void check_packing(const ClassificationConfig& task, const Checked& checked) {
  const auto* packing = packing_options(task.data.packing);
  if (packing == nullptr) return;
  if (!packing->separate)
    checked.fail({"data.packing.separate", "task.kind"},
                 "false is for language models: the class of a text does not depend on what else is in its row");
  checked.refuse(task.bucketing > 1, {"data.packing", "task.bucketing"},
                 "'{}' leaves nothing to sort by length: set task.bucketing to 1", kind_of(task.data.packing));
  checked.refuse(sampling_of(task.data.tokenizer) > 0, {"data.packing", "data.tokenizer.sampling"},
                 "'{}' needs the lengths of texts, which data.tokenizer.sampling draws anew: set that to 0",
                 kind_of(task.data.packing));
}

// A slice would need gradients of whole tables, of which a batch reads few rows.
void check_slices(const ClassificationConfig& task, const Checked& checked) {
  const auto* model = std::get_if<TransformerConfig>(&checked.model);
  const auto slices = checked.train.cpu_slices;
  if (slices == 1 || model == nullptr) return;
  for (const auto& [holds, section, tables] :
       {std::tuple(has_regions(model->embedding), "model.embedding.region", "tables are"),
        std::tuple(bag_options(task.head) != nullptr, "task.head.bag", "table is")})
    checked.refuse(holds, {"train.cpu_slices", section},
                   "{} cannot be had with {}, whose {} too large to have gradients for each slice: set it to 1", slices,
                   section, tables);
}

void check_task(const ClassificationConfig& task, const Checked& checked) {
  checked.refuse(task.data.format == TableFormat::text, {"data.format", "task.kind"},
                 "'text' has no labels: classification reads csv, tsv or jsonl");
  check_tokenizer(task.data.tokenizer, checked);
  check_corpus(task.data.corpus, ClassificationConfig::kind, checked);
  check_rating(task.data.rating, checked);
  check_packing(task, checked);
  check_slices(task, checked);
  checked.refuse(task.token_removal + task.token_unknown >= 1, {"task.token_removal", "task.token_unknown"},
                 "{} and task.token_unknown {} together must stay below 1", task.token_removal, task.token_unknown);
}

void check_options(const RecallConfig& task, const Checked& checked) {
  const auto keys = task.vocabulary / 2 - 1, needed = task.prompt_length() + 2 * task.answers();
  checked.refuse(task.updates > task.pairs, {"task.updates", "task.pairs"}, "{} are more than task.pairs {}",
                 task.updates, task.pairs);
  checked.refuse(task.pairs > keys, {"task.pairs", "task.vocabulary"},
                 "{} are more than the {} keys of task.vocabulary {}", task.pairs, keys, task.vocabulary);
  checked.refuse(task.length < needed, {"task.length", "task.pairs", "task.updates", "task.queries"},
                 "{} is too short: each pair, update and query takes 2 tokens, so set it to {} or more", task.length,
                 needed);
}
void check_options(const SelectiveCopyConfig& task, const Checked& checked) {
  checked.refuse(task.length < 2 * task.tokens + 1, {"task.length", "task.tokens"},
                 "{} is too short: task.tokens {}, a mark and their copies take {}", task.length, task.tokens,
                 2 * task.tokens + 1);
}
void check_options(const InContextRecallConfig& task, const Checked& checked) {
  checked.refuse(task.length % 2 != 0, {"task.length"}, "{} is odd, and a row is of pairs: set it to an even number",
                 task.length);
  checked.refuse(task.symbols() < 2, {"task.noise_vocabulary", "task.vocabulary", "task.noise"},
                 "{} leaves fewer than 2 of task.vocabulary {} for keys and values", task.noise_vocabulary,
                 task.vocabulary);
}
void check_options(const FuzzyRecallConfig& task, const Checked& checked) {
  checked.refuse((task.vocabulary - 1) / 2 < task.longest, {"task.longest", "task.vocabulary"},
                 "{} different tokens are more than the {} that keys are made of", task.longest,
                 (task.vocabulary - 1) / 2);
  checked.refuse(task.length < 4 * task.longest + 1, {"task.length", "task.longest"},
                 "{} is too short: with task.longest {} set it to {} or more", task.length, task.longest,
                 4 * task.longest + 1);
}
void check_options(const MemorisationConfig& task, const Checked& checked) {
  checked.refuse(task.length % 2 != 0, {"task.length"},
                 "{} is odd, and a row is of keys and questions: set it to an even number", task.length);
}
void check_options(const CompressionConfig&, const Checked& checked) {
  checked.refuse(!is<TransformerConfig>(checked.model), {"model.kind", "task.kind"},
                 "{} has no vector of a whole row for task compression: set it to transformer", kind_of(checked.model));
}
void check_options(const RecallRows&, const Checked&) {}

// Checks a task of rows that test a model's memory.
template <class Rows>
requires std::is_base_of_v<RecallRows, Rows>
void check_task(const Rows& task, const Checked& checked) {
  constexpr std::int64_t most_tokens = 1 << 26;  // 2 GiB for both splits, with targets
  check_options(task, checked);
  const auto context = context_of(checked.model);
  checked.refuse(context < task.length, {"model.context", "task.length"},
                 "{} is too short: rows have {} tokens, so set it to that or more", context, task.length);
  checked.refuse(task.held_out * task.length > most_tokens, {"task.held_out", "task.length"},
                 "{} rows of {} tokens are too many: at most {} tokens are held out", task.held_out, task.length,
                 most_tokens);
}

// Checks a task of lists.
template <class Lists>
void check_task(const Lists& task, const Checked& checked) {
  const auto lists = *list_task(task);
  const auto context = context_of(checked.model), needed = lists.row_length();
  checked.refuse(context < needed, {"model.context", "task.length"},
                 "{} is too short: a list of {} and its {}copy take {}, so set it to that or more", context,
                 task.length, lists.copies ? "" : "sorted ", needed);
}

void check_mixture(const Checked& checked) {
  const auto* text = text_data_of(checked.config.task);
  if (text == nullptr) return;
  for (const auto& entry : text->mixture)
    if (!parse_named_number(entry))
      checked.fail({"data.mixture"}, "{} is not FOLDER=WEIGHT with a finite weight above 0, as tokens/books=0.7",
                   in_quotes(entry));
  checked.refuse(!text->mixture.empty() && tokens_before_segment(checked.model) > 0, {"data.mixture"},
                 "has windows at random places, but {} continues each row from step to step", order_key(checked.model));
}

void check_train(const Checked& checked) {
  const auto rate = checked.train.learning_rate;
  if (checked.train.epochs && checked.provenance.contains("train.steps"))
    checked.fail({"train.epochs"}, "{} and train.steps {} both give the length of the training: leave one of them out",
                 *checked.train.epochs, checked.train.steps);
  if (const auto* falling = options_as<FallingScheduleConfig>(checked.train.schedule);
      falling != nullptr && falling->floor > rate)
    checked.fail({"train.schedule.floor", "train.learning_rate"}, "{} is above train.learning_rate {}", falling->floor,
                 rate);
  const auto& lora = checked.train.lora;
  checked.refuse(
      lora.rank > 0 && !checked.train.init_from, {"train.lora.rank", "train.init_from"},
      "{} adapts initial weights, and train.init_from names none: set it to a run or a Hugging Face folder, or "
      "train.lora.rank to 0",
      lora.rank);
  checked.refuse(lora.rank > 0 && lora.targets.empty(), {"train.lora.targets", "train.lora.rank"},
                 "is empty, so that there is nothing to adapt: name matrices, as [mixer]");
  for (const auto& entry : checked.train.rate_factors)
    if (!parse_named_number(entry))
      checked.fail({"train.rate_factors"},
                   "{} is not PARAMETER=FACTOR with a finite factor above 0, as mixer.projection=0.3",
                   in_quotes(entry));
}

}  // namespace

void check_config(const ExperimentConfig& config, const Provenance& provenance) {
  const Checked checked{config, provenance};
  check_ranges(checked);
  check_model(checked);
  std::visit([&](const auto& task) { check_task(task, checked); }, config.task);
  check_train(checked);
  check_mixture(checked);
  check_unused_keys(checked);
}

std::vector<std::string> config_warnings(const ExperimentConfig& config, const Provenance& provenance) {
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& key, const std::string& what) {
    const auto* place = Checked{config, provenance}.place_of(key);
    warnings.push_back(fmt::format("{}: {}: {}", (place == nullptr ? Location{} : *place).str(), key, what));
  };
  if (is<LinearConfig>(config.model)) return {};
  const auto& train = config.train;
  if (const auto warmup = warmup_steps(train.schedule); !train.epochs && train.steps <= warmup)
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

}  // namespace metaformer
