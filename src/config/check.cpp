#include "config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "config/check_model.h"
#include "config/fail.h"
#include "config/rate_factor.h"
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
