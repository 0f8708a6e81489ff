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
    if constexpr (is_variant<T>) {
      std::visit([&](auto& options) { descend(name, options); }, value);
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

void check_metric(const MetricOptions& metric, const Provenance& provenance) {
  const std::string score = "model.mixer.score", constraint = "model.mixer.constraint", backend = "model.mixer.backend";
  const bool symmetric = metric.constraint == MetricConstraint::symmetric;
  if (metric.score == MetricScore::distance && symmetric)
    fail(provenance, {score, constraint},
         "'distance' needs a metric that is never negative: set constraint to psd, diagonal or identity");
  if (metric.score == MetricScore::as_published && !symmetric)
    fail(provenance, {score, constraint},
         "'as_published' is the formula for a packed metric: set constraint to symmetric");
  const bool other_backend = metric.backend == Backend::composed || metric.backend == Backend::fused;
  if (metric.score == MetricScore::as_published && other_backend)
    fail(provenance, {backend, score},
         "'as_published' has the reference backend alone: set backend to auto or reference");
}

void check_fused(const ModelConfig& model, const Provenance& provenance) {
  const std::string backend = "model.mixer.backend";
  if (backend_of(model.mixer) != Backend::fused) return;
  if (!has_fused_backend(model.mixer))
    fail(provenance, {backend, "model.mixer.kind"},
         "'fused' is of metric and projected quadratic attention: set backend to auto");
  if (model.head_width() % 8 != 0 || model.head_width() > 128)
    fail(provenance, {backend, "model.width", "model.heads"},
         fmt::format("'fused' needs heads whose width is a multiple of 8 up to 128, not {}; change model.width or "
                     "model.heads, or set composed",
                     model.head_width()));
  if (model.dropout > 0)
    fail(provenance, {backend, "model.dropout"},
         "'fused' has no dropout on scores: set model.dropout to 0, or backend to composed");
}

void check_model(const ModelConfig& model, const Provenance& provenance) {
  if (model.width % model.heads != 0)
    fail(provenance, {"model.heads", "model.width"},
         fmt::format("{} heads do not divide model.width {}", model.heads, model.width));
  if (model.hidden_width() < 1)
    fail(provenance, {"model.feed_forward.ratio", "model.width"},
         fmt::format("{} times model.width {} leaves no hidden unit", model.feed_forward.ratio, model.width));
  if (const auto* metric = std::get_if<MetricOptions>(&model.mixer)) check_metric(*metric, provenance);
  check_fused(model, provenance);
}

// A resolved config names every key, so a key that does not apply is a mistake only where it differs from its default.
void refuse_keys_of_other_tasks(const ExperimentConfig& config, const Provenance& provenance) {
  const ExperimentConfig plain;
  const auto &data = config.data, &usual = plain.data;
  const auto& model = config.model;
  const auto& train = config.train;
  const bool sorts = config.task == TaskKind::sort, classifies = config.task == TaskKind::classification;
  const bool models_text = config.task == TaskKind::language_model;
  const bool plain_tokenizer = std::holds_alternative<CharacterTokenizerOptions>(data.tokenizer);
  struct Rule {
    const char* key;
    bool differs, applies;
  };
  for (const auto& [key, differs, applies] : std::initializer_list<Rule>{
           {"data.corpus", data.corpus != usual.corpus, !sorts},
           {"data.path", data.path != usual.path, !sorts},
           {"data.validation_path", data.validation_path != usual.validation_path, !sorts},
           {"data.test_path", data.test_path != usual.test_path, classifies},
           {"data.validation_fraction", data.validation_fraction != usual.validation_fraction, !sorts},
           {"data.format", data.format != usual.format, !sorts},
           {"data.header", data.header != usual.header, classifies},
           {"data.text_field", data.text_field != usual.text_field, !sorts},
           {"data.label_field", data.label_field != usual.label_field, classifies},
           {"data.malformed_limit", data.malformed_limit != usual.malformed_limit, !sorts},
           {"data.document_separator", data.document_separator != usual.document_separator, models_text},
           {"data.rating.positive_from", data.rating.positive_from.has_value(), classifies},
           {"data.truncation", data.truncation != usual.truncation, classifies},
           {"data.tokenizer.kind", !plain_tokenizer, !sorts},
           {"data.sort.length", data.sort.length != usual.sort.length, sorts},
           {"data.sort.digits", data.sort.digits != usual.sort.digits, sorts},
           {"model.kind", model.kind != plain.model.kind, classifies},
           {"model.head", model.head != plain.model.head, classifies},
           {"model.recalibrate", model.recalibrate, classifies},
           {"model.embedding_scale", model.embedding_scale != plain.model.embedding_scale, classifies},
           {"model.ngram_embedding.order", model.ngram_embedding.order != plain.model.ngram_embedding.order,
            classifies},
           {"train.label_smoothing", train.label_smoothing != 0, classifies},
           {"train.class_weights", train.class_weights != plain.train.class_weights, classifies},
           {"train.token_removal", train.token_removal != 0, classifies},
           {"train.token_unknown", train.token_unknown != 0, classifies},
           {"train.selection_metric", train.selection_metric != plain.train.selection_metric, classifies},
           {"train.bucketing", train.bucketing != plain.train.bucketing, classifies},
           {"train.sample_interval", train.sample_interval != 0, config.task == TaskKind::language_model},
           {"model.tie_embeddings", model.tie_embeddings != plain.model.tie_embeddings, !classifies}})
    if (differs && !applies) fail(provenance, {key}, fmt::format("has no meaning for task {}", to_string(config.task)));
}

void check_joiners(const std::string& joiners, const Provenance& provenance) {
  if (!std::all_of(joiners.begin(), joiners.end(), is_joiner))
    fail(provenance, {"data.tokenizer.joiners"},
         fmt::format("{} is not a list of ASCII marks such as \"'\" or \"'/-\"", in_quotes(joiners)));
}

void check_tokenizer(const ExperimentConfig& config, const Provenance& provenance) {
  if (const auto* words = std::get_if<WordTokenizerOptions>(&config.data.tokenizer))
    check_joiners(words->joiners, provenance);
  const auto* unigram = std::get_if<UnigramTokenizerOptions>(&config.data.tokenizer);
  if (config.task == TaskKind::language_model && unigram != nullptr && unigram->sampling > 0)
    fail(provenance, {"data.tokenizer.sampling", "task"},
         fmt::format("{} has no effect on a language model, whose text is tokenized once: set it to 0",
                     unigram->sampling));
  const bool drops = std::visit(
      [](const auto& options) {
        if constexpr (requires { options.whitespace; }) return options.whitespace == Whitespace::dropped;
        return false;
      },
      config.data.tokenizer);
  if (config.task == TaskKind::language_model && drops)
    fail(provenance, {"data.tokenizer.whitespace", "data.tokenizer.kind", "task"},
         fmt::format("a language model needs the spaces that {} leaves out: set it to kept",
                     kind_of(config.data.tokenizer)));
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

void check_files(const ExperimentConfig& config, const Provenance& provenance) {
  const auto& data = config.data;
  const bool is_table = data.format == TableFormat::csv || data.format == TableFormat::tsv;
  if (config.task == TaskKind::language_model && is_table)
    fail(provenance, {"data.format", "task"},
         fmt::format("a language model reads text or jsonl, not {}, which is for tables with labels",
                     to_string(data.format)));
  if (config.task == TaskKind::classification && data.format == TableFormat::text)
    fail(provenance, {"data.format", "task"}, "'text' has no labels: classification reads csv, tsv or jsonl");
}

void check_corpus(const ExperimentConfig& config, const Provenance& provenance) {
  const auto& corpus = config.data.corpus;
  const std::vector<std::string> names(corpus_names.begin(), corpus_names.end());
  if (std::find(names.begin(), names.end(), corpus) == names.end())
    fail(provenance, {"data.corpus"},
         fmt::format("unknown corpus {}; expected {}{}", in_quotes(corpus), join_alternatives(names),
                     did_you_mean(corpus, names)));
  if (config.task == TaskKind::language_model && corpus != DataConfig().corpus)
    fail(provenance, {"data.corpus"}, fmt::format("'{}' is labelled: it is for task classification", corpus));
}

void check_data(const ExperimentConfig& config, const Provenance& provenance) {
  const auto& data = config.data;
  refuse_keys_of_other_tasks(config, provenance);
  check_files(config, provenance);
  check_tokenizer(config, provenance);
  check_corpus(config, provenance);
  check_rating(data.rating, provenance);
  if (config.task == TaskKind::sort && config.model.context < 2 * data.sort.length - 1)
    fail(provenance, {"model.context", "data.sort.length"},
         fmt::format("{} is too short: a list of {} and its sorted copy take {}, so set it to that or more",
                     config.model.context, data.sort.length, 2 * data.sort.length - 1));
}

void check_train(const TrainConfig& train, const Provenance& provenance) {
  if (train.token_removal + train.token_unknown >= 1)
    fail(provenance, {"train.token_removal", "train.token_unknown"},
         fmt::format("{} and train.token_unknown {} together must stay below 1", train.token_removal,
                     train.token_unknown));
  if (train.schedule != ScheduleKind::constant && train.min_learning_rate > train.learning_rate)
    fail(provenance, {"train.min_learning_rate", "train.learning_rate"},
         fmt::format("{} is above train.learning_rate {}", train.min_learning_rate, train.learning_rate));
}

}  // namespace

void check_config(const ExperimentConfig& config, const Provenance& provenance) {
  auto copy = config;  // visiting takes a mutable struct
  RangeChecker checker("", provenance);
  visit(checker, copy);
  check_model(config.model, provenance);
  check_data(config, provenance);
  check_train(config.train, provenance);
  if (const auto unused = find_unused_key(config)) fail(provenance, {unused->key}, unused->why);
}

}  // namespace metaformer
