#include "data/tokenizer_report.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "config/paths.h"
#include "data/labelled_source.h"
#include "data/pair_source.h"
#include "data/text_dataset.h"
#include "text/make_tokenizer.h"

namespace metaformer {

namespace {

// The texts of a split, in memory that somebody else owns.
using Texts = std::vector<std::string_view>;

// Encodes all, and returns the seconds it took.
double encode_all(const Tokenizer& tokenizer, const Texts& texts, TokenizedSplit& split) {
  split = {};
  const auto unknown = tokenizer.unknown_id();
  double seconds = 0;
  for (const auto text : texts) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(text);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++split.texts;
    split.characters += count_characters(text);
    split.tokens += static_cast<std::int64_t>(ids.size());
    if (unknown) split.unknown_tokens += std::count(ids.begin(), ids.end(), *unknown);
  }
  return seconds;
}

std::vector<std::string> longest_tokens(const Tokenizer& tokenizer) {
  constexpr std::size_t most = 10;
  std::vector<std::pair<std::int64_t, std::string>> tokens;  // the length negated: the longest come first
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    auto text = tokenizer.decode(std::vector{id});
    tokens.emplace_back(-count_characters(text), std::move(text));
  }
  std::sort(tokens.begin(), tokens.end());
  std::vector<std::string> longest;
  for (std::size_t i = 0; i < std::min(tokens.size(), most); ++i) longest.push_back(std::move(tokens[i].second));
  return longest;
}

TokenizerReport measure(std::unique_ptr<Tokenizer> tokenizer, const DataConfig& config,
                        const std::array<Texts, 2>& texts) {
  TokenizerReport report;
  report.kind = kind_of(config.tokenizer);
  report.longest_tokens = longest_tokens(*tokenizer);
  double bytes = 0;
  for (const auto text : texts[0]) bytes += static_cast<double>(text.size());
  for (auto& speed : report.megabytes_per_second)
    speed = bytes / 1e6 / std::max(encode_all(*tokenizer, texts[0], report.splits[0]), 1e-9);
  encode_all(*tokenizer, texts[1], report.splits[1]);
  report.tokenizer = std::move(tokenizer);
  return report;
}

TokenizerReport report_text(const ExperimentConfig& config, bool offline) {
  const auto& data = *text_data_of(config.task);
  const auto corpus = load_corpus(data, offline);
  const auto [train, validation] = split_corpus(corpus, data);
  return measure(make_text_tokenizer(corpus, data), data, {Texts{train}, Texts{validation}});
}

TokenizerReport report_labelled(const ExperimentConfig& config, bool offline) {
  const auto data = labelled_data(config);
  const auto splits = load_labelled_splits(data, offline);
  std::array<Texts, 2> texts;
  for (const auto split : {Split::train, Split::validation})
    for (const auto& text : splits[split]) texts[static_cast<std::size_t>(split)].push_back(text.text);
  return measure(obtain_tokenizer(data, joined_texts(splits[Split::train]), Unknown::map), data, texts);
}

// Of both sides.
TokenizerReport report_pairs(const ParallelDataConfig& data, bool offline) {
  const auto splits = load_pair_splits(data, offline);
  std::array<Texts, 2> texts;
  for (const auto split : {Split::train, Split::validation})
    for (const auto& pair : splits[split])
      for (const auto* text : {&pair.source, &pair.target}) texts[static_cast<std::size_t>(split)].push_back(*text);
  return measure(obtain_tokenizer(data, joined_texts(splits[Split::train]), Unknown::map), data, texts);
}

}  // namespace

TokenizerReport report_tokenizer(const ExperimentConfig& config, bool offline) {
  if (list_task(config.task))
    throw Error(ExitCode::usage,
                fmt::format("task {} has no texts: its tokens are the numbers of its lists", kind_of(config.task)));
  if (const auto* task = std::get_if<SequenceToSequenceConfig>(&config.task)) {
    if (synthetic_options(task->data.synthetic) != nullptr)
      throw Error(ExitCode::usage, "data.synthetic has no texts: its tokens are the numbers of its symbols");
    return report_pairs(task->data, offline);
  }
  return text_data_of(config.task) != nullptr ? report_text(config, offline) : report_labelled(config, offline);
}

namespace {

// Whether the tokenizer is soon made.
bool is_made_soon(const DataConfig& data, std::string_view training_text) {
  constexpr std::size_t most_to_learn_from = 1 << 20;
  const auto cached = cached_tokenizer_path(data.tokenizer, training_text);  // of those that take long to learn
  std::error_code ignored;
  return cached.empty() || training_text.size() <= most_to_learn_from || std::filesystem::exists(cached, ignored);
}

void count(const TextDataConfig& data, DataCounts& counts) {
  const auto corpus = load_corpus(data, /*offline=*/true);
  if (is_made_soon(data, split_corpus(corpus, data)[0]))
    counts.vocabulary = make_text_tokenizer(corpus, data)->vocabulary_size();
}

// Of labelled texts or pairs.
template <class Text>
void count_tokens(const DataConfig& data, const std::vector<Text>& training, DataCounts& counts) {
  const auto text = joined_texts(training);
  if (is_made_soon(data, text)) counts.vocabulary = obtain_tokenizer(data, text, Unknown::map)->vocabulary_size();
}

void count(const LabelledDataConfig& data, DataCounts& counts) {
  const auto splits = load_labelled_splits(data, /*offline=*/true);
  std::set<std::string> labels;
  for (const auto& text : splits[Split::train]) labels.insert(text.label);
  counts.classes = std::ssize(labels);
  count_tokens(data, splits[Split::train], counts);
}

void count(const ParallelDataConfig& data, DataCounts& counts) {
  if (synthetic_options(data.synthetic) == nullptr)
    count_tokens(data, load_pair_splits(data, /*offline=*/true)[Split::train], counts);
}

}  // namespace

DataCounts count_data(const ExperimentConfig& config) {
  DataCounts counts;
  try {
    const auto* data = data_of(config);
    if (data != nullptr && is<PretrainedTokenizerOptions>(data->tokenizer))
      counts.vocabulary = make_tokenizer(data->tokenizer, "")->vocabulary_size();
    if (const auto* text = text_data_of(config.task)) count(*text, counts);
    if (is<ClassificationConfig>(config.task)) count(labelled_data(config), counts);
    if (const auto* pairs = std::get_if<SequenceToSequenceConfig>(&config.task)) count(pairs->data, counts);
  } catch (const Error&) {  // training reports it
  }
  return counts;
}

nlohmann::ordered_json to_json(const TokenizerReport& report) {
  nlohmann::ordered_json json = {{"kind", report.kind}, {"vocabulary", report.tokenizer->vocabulary_size()}};
  for (const auto split : {Split::train, Split::validation}) {
    const auto& counts = report[split];
    auto& entry = json["splits"][std::string(to_string(split))];
    entry = {{"texts", counts.texts},
             {"characters", counts.characters},
             {"tokens", counts.tokens},
             {"characters_per_token", static_cast<double>(counts.characters) / static_cast<double>(counts.tokens)}};
    if (report.tokenizer->unknown_id())
      entry["unknown_share"] = static_cast<double>(counts.unknown_tokens) / static_cast<double>(counts.tokens);
  }
  json["megabytes_per_second"] = {{"first_pass", report.megabytes_per_second[0]},
                                  {"second_pass", report.megabytes_per_second[1]}};
  json["longest_tokens"] = report.longest_tokens;
  return json;
}

}  // namespace metaformer
