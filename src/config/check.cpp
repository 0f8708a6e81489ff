#include "config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "config/unused_keys.h"

namespace metaformer {

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

std::string place(const Provenance& provenance, const std::string& path) {
  const auto found = provenance.find(path);
  return found == provenance.end() ? "default" : found->second.str();
}

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
                fmt::format("{}: {}: {} is out of range; must be {}{}", place(provenance_, full(name)), full(name),
                            value, range.str(), is_huge ? fmt::format(" and at most {}", largest_number) : ""));
  }

  std::string path_;
  const Provenance& provenance_;
};

// Fails naming the place of whichever of the keys was set last by the user, preferring the first.
[[noreturn]] void fail(const Provenance& provenance, const std::vector<std::string>& paths, const std::string& what) {
  std::string where = "default";
  for (const auto& path : paths) {
    if (provenance.contains(path)) {
      where = place(provenance, path);
      break;
    }
  }
  throw Error(ExitCode::usage, fmt::format("{}: {}: {}", where, paths.front(), what));
}

void check_positions(const TransformerConfig& model, const Provenance& provenance) {
  const auto kind = kind_of(model.positions);
  if (act_on_scores(model.positions) && !model.mixer->has_scores())
    fail(provenance, {"model.positions", "model.positions.kind", "model.mixer", "model.mixer.kind"},
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

void check_memory(const TransformerConfig& model, const ExperimentConfig& config, const Provenance& provenance) {
  if (model.same_length && model.memory == 0)
    fail(provenance, {"model.same_length", "model.memory"},
         "means nothing without model.memory: set it to false, or model.memory to a number of tokens");
  if (model.same_length && !model.mixer->has_scores())
    fail(provenance, {"model.same_length", "model.mixer", "model.mixer.kind"},
         fmt::format("has no effect on the mixer {}, which has no scores", model.mixer->kind()));
  if (model.memory == 0) return;
  if (!is<LanguageModelConfig>(config.task))
    fail(provenance, {"model.memory", "task.kind"},
         fmt::format("{} has no meaning for task {}: it is for texts that are read in order, as language_model does",
                     model.memory, kind_of(config.task)));
  if (model.mixer->chooses_by_whole_sequence())
    fail(provenance, {"model.memory", "model.mixer", "model.mixer.kind"},
         fmt::format("the mixer {} takes no longer context: set it to 0", model.mixer->kind()));
  if (is<RandomEvaluationConfig>(config.train.evaluation))
    fail(provenance, {"train.evaluation", "train.evaluation.kind", "model.memory"},
         "'random' batches have nothing before them to remember: set it to whole");
  if (config.train.overfit_batch)
    fail(provenance, {"train.overfit_batch", "model.memory"},
         "true shows one batch again and again, and with model.memory a batch goes on from the one before it: set "
         "model.memory to 0");
}

void check_blocks(const TransformerConfig& model, const Provenance& provenance) {
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

void check_model(const TransformerConfig& model, const ExperimentConfig& config, const Provenance& provenance) {
  const auto& task = config.task;
  if (model.width % model.heads != 0)
    fail(provenance, {"model.heads", "model.width"},
         fmt::format("{} heads do not divide model.width {}", model.heads, model.width));
  if (model.hidden_width() < 1)
    fail(provenance, {"model.feed_forward.ratio", "model.width"},
         fmt::format("{} times model.width {} leaves no hidden unit",
                     std::visit([](const auto& options) { return options.ratio; }, model.feed_forward), model.width));
  if (model.embedding.scale == EmbeddingScale::log_count_ratio && !is<ClassificationConfig>(task))
    fail(provenance, {"model.embedding.scale", "task.kind"},
         fmt::format("'log_count_ratio' has no meaning for task {}: set it to none or sqrt_width", kind_of(task)));
  check_positions(model, provenance);
  check_memory(model, config, provenance);
  check_blocks(model, provenance);
  if (const auto problem = model.mixer->problem(model.mixer_shape())) fail(provenance, problem->keys, problem->what);
}

void check_joiners(const std::string& joiners, const Provenance& provenance) {
  if (!std::all_of(joiners.begin(), joiners.end(), is_joiner))
    fail(provenance, {"data.tokenizer.joiners"},
         fmt::format("{} is not a list of ASCII marks such as \"'\" or \"'/-\"", in_quotes(joiners)));
}

void check_tokenizer(const TokenizerOptions& tokenizer, const Provenance& provenance) {
  if (const auto* words = std::get_if<WordTokenizerOptions>(&tokenizer)) check_joiners(words->joiners, provenance);
}

void check_text_tokenizer(const TokenizerOptions& tokenizer, const Provenance& provenance) {
  const auto* unigram = std::get_if<UnigramTokenizerOptions>(&tokenizer);
  if (unigram != nullptr && unigram->sampling > 0)
    fail(provenance, {"data.tokenizer.sampling", "task.kind"},
         fmt::format("{} has no effect on a language model, whose text is tokenized once: set it to 0",
                     unigram->sampling));
  const bool drops = std::visit(
      [](const auto& options) {
        if constexpr (requires { options.whitespace; }) return options.whitespace == Whitespace::dropped;
        return false;
      },
      tokenizer);
  if (drops)
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

void check_corpus(const std::string& corpus, const Provenance& provenance) {
  const std::vector<std::string> names(corpus_names.begin(), corpus_names.end());
  if (std::find(names.begin(), names.end(), corpus) == names.end())
    fail(provenance, {"data.corpus"},
         fmt::format("unknown corpus {}; expected {}{}", in_quotes(corpus), join_alternatives(names),
                     did_you_mean(corpus, names)));
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

void check_task(const LanguageModelConfig& task, const ExperimentConfig& config, const Provenance& provenance) {
  const auto& data = task.data;
  const auto* model = std::get_if<TransformerConfig>(&config.model);
  if (packing_options(data.packing) != nullptr && model != nullptr && model->memory > 0)
    fail(provenance, {"data.packing", "data.packing.kind", "model.memory"},
         fmt::format("'{}' puts texts in any order, and model.memory needs what was before them: set data.packing to "
                     "none, or model.memory to 0",
                     kind_of(data.packing)));
  if (data.format == TableFormat::csv || data.format == TableFormat::tsv)
    fail(provenance, {"data.format", "task.kind"},
         fmt::format("a language model reads text or jsonl, not {}, which is for tables with labels",
                     to_string(data.format)));
  check_tokenizer(data.tokenizer, provenance);
  check_text_tokenizer(data.tokenizer, provenance);
  check_corpus(data.corpus, provenance);
  if (data.corpus != DataConfig().corpus)
    fail(provenance, {"data.corpus"}, fmt::format("'{}' is labelled: it is for task classification", data.corpus));
}

void check_task(const ClassificationConfig& task, const ExperimentConfig&, const Provenance& provenance) {
  if (task.data.format == TableFormat::text)
    fail(provenance, {"data.format", "task.kind"}, "'text' has no labels: classification reads csv, tsv or jsonl");
  check_tokenizer(task.data.tokenizer, provenance);
  check_corpus(task.data.corpus, provenance);
  check_rating(task.data.rating, provenance);
  check_packing(task, provenance);
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

void check_model(const LinearConfig&, const ExperimentConfig& config, const Provenance& provenance) {
  if (!is<ClassificationConfig>(config.task))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("linear has no meaning for task {}: it is for classification", kind_of(config.task)));
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

}  // namespace

void check_config(const ExperimentConfig& config, const Provenance& provenance) {
  auto copy = config;  // visiting takes a mutable struct
  RangeChecker checker("", provenance);
  visit(checker, copy);
  std::visit([&](const auto& model) { check_model(model, config, provenance); }, config.model);
  std::visit([&](const auto& task) { check_task(task, config, provenance); }, config.task);
  std::visit([&](const auto& schedule) { check_schedule(schedule, config.train, provenance); }, config.train.schedule);
  if (const auto unused = find_unused_key(config)) fail(provenance, {unused->key}, unused->why);
}

}  // namespace metaformer
