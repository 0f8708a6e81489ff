#include "data/statistics.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/labelled.h"
#include "data/text_dataset.h"
#include "data/token_folder.h"
#include "text/make_tokenizer.h"

namespace metaformer {

LengthStats measure_lengths(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  // The rank is rounded up and counted from 1.
  const auto percentile = [&](std::size_t percent) { return lengths[(lengths.size() * percent + 99) / 100 - 1]; };
  const auto sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return {.mean = static_cast<double>(sum) / static_cast<double>(lengths.size()),
          .median = percentile(50),
          .percentile_90 = percentile(90),
          .percentile_95 = percentile(95),
          .percentile_99 = percentile(99),
          .longest = lengths.back()};
}

namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

std::int64_t count_unknown(const Tokenizer& tokenizer, const Ids& ids) {
  const auto unknown = tokenizer.unknown_id();
  return unknown ? std::count(ids.begin(), ids.end(), *unknown) : 0;
}

// `ids_of`: returns the tokens of a text. Texts with more than `longest` tokens count as cut.
template <class Texts, class IdsOf>
TokenStats count_tokens(const Tokenizer& tokenizer, std::int64_t longest, const Texts& texts, IdsOf ids_of) {
  TokenStats stats;
  std::vector<std::int64_t> lengths;
  for (const auto& text : texts) {
    const Ids& ids = std::invoke(ids_of, text);
    lengths.push_back(std::ssize(ids));
    stats.all_tokens += lengths.back();
    stats.unknown_tokens += count_unknown(tokenizer, ids);
    stats.cut += lengths.back() > longest;
  }
  stats.tokens = measure_lengths(std::move(lengths));
  return stats;
}

template <class SplitStats>
void describe(DataStats<SplitStats>& stats, const Tokenizer& tokenizer, const Json& sources) {
  stats.vocabulary = tokenizer.vocabulary_size();
  stats.has_unknown = tokenizer.unknown_id().has_value();
  stats.sources = sources;
}

// Nothing without data.packing.
template <class Texts, class LengthOf>
std::optional<PackStats> measure_packs(const Texts& texts, std::int64_t context, const PackingConfig& packing,
                                       LengthOf length_of) {
  if (packing_options(packing) == nullptr) return std::nullopt;
  std::vector<std::int64_t> lengths;
  for (const auto& text : texts) lengths.push_back(std::invoke(length_of, text));
  return measure_packing(lengths, context, packing);
}

template <class Key>
std::int64_t count_copies(const std::vector<Key>& keys) {
  return std::ssize(keys) - std::ssize(std::set<Key>(keys.begin(), keys.end()));
}

template <class Key>
SharedTexts count_shared(const BySplit<std::vector<Key>>& keys) {
  const auto shared = [&](Split split, Split other) {
    const std::set<Key> others(keys[other].begin(), keys[other].end());
    return std::ranges::count_if(keys[split], [&](const Key& key) { return others.contains(key); });
  };
  return {.validation_in_train = shared(Split::validation, Split::train),
          .test_in_train = shared(Split::test, Split::train),
          .test_in_validation = shared(Split::test, Split::validation)};
}

// The fraction of padding in the training batches of the first epoch, without noise. `bucketing`: 1 for texts in random
// order, or task.bucketing.
double padding_fraction(const EncodedSplits& splits, const ExperimentConfig& config, std::int64_t bucketing) {
  EncodedSplits training;  // without a tokenizer, because texts are not segmented again
  training[Split::train] = splits[Split::train];
  const LabelledDataset dataset(
      std::move(training),
      {.context = context_of(config.model), .truncation = classification(config).truncation, .bucketing = bucketing});
  const auto& train = config.train;
  const auto rows_per_step = train.batch_size * train.accumulate;
  const auto steps = std::max<std::int64_t>(1, dataset.count(Split::train) / rows_per_step);
  std::int64_t places = 0, padding = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t first = 0; first < rows_per_step; first += train.batch_size) {
      const auto batch =
          dataset.training_rows(static_cast<std::uint64_t>(train.seed), step, rows_per_step, first, train.batch_size);
      places += batch.rows * batch.length;
      padding += std::count(batch.segments.begin(), batch.segments.end(), -1);
    }
  }
  return static_cast<double>(padding) / static_cast<double>(places);
}

double padding_fraction(const PairDataset& pairs, const ExperimentConfig& config) {
  const auto context = context_of(config.model), accumulate = config.train.accumulate;
  const auto batches = std::max(1.0, std::round(static_cast<double>(pairs.count(Split::train)) / pairs.mean_pairs()));
  std::int64_t places = 0, padding = 0;
  for (std::int64_t i = 0; static_cast<double>(i) < batches; ++i) {
    const auto [source, target] = to_rows(pairs.training_pairs(i / accumulate, i % accumulate), /*mark=*/0, context);
    places += source.rows * (source.length + target.length);
    padding += std::ranges::count(source.segments, -1) + std::ranges::count(target.segments, -1);
  }
  return 1 - static_cast<double>(places - padding) / static_cast<double>(places);
}

Json known_or_null(bool is_known, std::int64_t count) { return is_known ? Json(count) : Json(nullptr); }

Json to_json(const TokenStats& stats, bool has_unknown) {
  const auto& lengths = stats.tokens;
  return {{"tokens", stats.all_tokens},
          {"tokens_per_text",
           {{"mean", lengths.mean},
            {"median", lengths.median},
            {"p90", lengths.percentile_90},
            {"p95", lengths.percentile_95},
            {"p99", lengths.percentile_99},
            {"longest", lengths.longest}}},
          {"cut_at_context", stats.cut},
          {"unknown_tokens", known_or_null(has_unknown, stats.unknown_tokens)}};
}

Json to_json(const PackStats& stats) {
  return {{"sequences", stats.sequences},   {"packs", stats.packs},   {"tokens", stats.tokens},
          {"efficiency", stats.efficiency}, {"factor", stats.factor}, {"speed_up_limit", stats.speed_up_limit}};
}

Json to_json(const SharedTexts& shared) {
  return {{"validation_in_train", shared.validation_in_train},
          {"test_in_train", shared.test_in_train},
          {"test_in_validation", shared.test_in_validation}};
}

// Views of the texts of a split.
using Texts = std::vector<std::string_view>;

struct EncodedTexts {
  std::int64_t characters = 0, tokens = 0, unknown_tokens = 0;
  double seconds = 0;
};

EncodedTexts encode_all(const Tokenizer& tokenizer, const Texts& texts) {
  EncodedTexts all;
  for (const auto text : texts) {
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer.encode(text);
    all.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    all.characters += count_characters(text);
    all.tokens += std::ssize(ids);
    all.unknown_tokens += count_unknown(tokenizer, ids);
  }
  return all;
}

std::vector<std::string> longest_tokens(const Tokenizer& tokenizer) {
  constexpr std::size_t most = 10;
  std::vector<std::string> tokens;
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) tokens.push_back(tokenizer.decode(std::vector{id}));
  std::ranges::sort(tokens, {},
                    [](const auto& text) { return std::pair(-count_characters(text), std::string_view(text)); });
  tokens.resize(std::min(tokens.size(), most));
  return tokens;
}

TokenizerReport measure(std::unique_ptr<Tokenizer> tokenizer, const DataConfig& config, const BySplit<Texts>& texts) {
  Json json = {{"kind", kind_of(config.tokenizer)}, {"vocabulary", tokenizer->vocabulary_size()}};
  const auto first = encode_all(*tokenizer, texts[Split::train]), second = encode_all(*tokenizer, texts[Split::train]),
             validation = encode_all(*tokenizer, texts[Split::validation]);
  for (const auto& [split, counts] : {std::pair(Split::train, &second), std::pair(Split::validation, &validation)}) {
    const auto tokens = static_cast<double>(counts->tokens);
    auto& entry = json["splits"][std::string(to_string(split))];
    entry = {{"texts", texts[split].size()},
             {"characters", counts->characters},
             {"tokens", counts->tokens},
             {"characters_per_token", static_cast<double>(counts->characters) / tokens}};
    if (tokenizer->unknown_id()) entry["unknown_share"] = static_cast<double>(counts->unknown_tokens) / tokens;
  }
  double bytes = 0;
  for (const auto text : texts[Split::train]) bytes += static_cast<double>(text.size());
  json["megabytes_per_second"] = {{"first_pass", bytes / 1e6 / std::max(first.seconds, 1e-9)},
                                  {"second_pass", bytes / 1e6 / std::max(second.seconds, 1e-9)}};
  json["longest_tokens"] = longest_tokens(*tokenizer);
  return {std::move(tokenizer), std::move(json)};
}

// For labelled texts or pairs; `members` are the members that hold their texts.
template <class Text>
TokenizerReport measure(const Splits<Text>& splits, const DataConfig& data,
                        const std::vector<std::string Text::*>& members) {
  BySplit<Texts> texts;
  for (const auto split : {Split::train, Split::validation})
    for (const auto& text : splits[split])
      for (const auto member : members) texts[split].push_back(text.*member);
  return measure(obtain_tokenizer(data, joined_texts(splits[Split::train]), Unknown::map), data, texts);
}

// Whether making the tokenizer takes little time.
bool is_made_soon(const DataConfig& data, std::string_view training_text) {
  constexpr std::size_t most_to_learn_from = 1 << 20;
  const auto cached = cached_tokenizer_path(data.tokenizer, training_text);  // only if learning takes long
  std::error_code ignored;
  return cached.empty() || training_text.size() <= most_to_learn_from || std::filesystem::exists(cached, ignored);
}

}  // namespace

LabelledStats measure_labelled_texts(LabelledSplits splits, const ExperimentConfig& config) {
  const auto& task = classification(config);
  const auto context = context_of(config.model);
  LabelledStats stats;
  BySplit<std::vector<std::string_view>> texts;
  for (const auto split : every_split) {
    for (const auto& text : splits[split]) texts[split].push_back(text.text);
    stats.splits[split].copies = count_copies(texts[split]);
  }
  stats.shared = count_shared(texts);
  const auto encoded = encode_splits(std::move(splits), task.data, Codec{});
  const auto& tokenizer = *encoded.codec.tokenizer;
  stats.labels = encoded.codec.labels;
  describe(stats, tokenizer, encoded.description);
  for (const auto split : every_split) {
    auto& of_split = stats.splits[split];
    of_split.texts = std::ssize(encoded[split]);
    static_cast<TokenStats&>(of_split) = count_tokens(tokenizer, context, encoded[split], &EncodedText::ids);
    of_split.class_counts.resize(stats.labels.size());
    for (const auto& text : encoded[split]) ++of_split.class_counts[static_cast<std::size_t>(text.label)];
  }
  stats.padding_unsorted = padding_fraction(encoded, config, 1);
  stats.padding_bucketed = padding_fraction(encoded, config, task.bucketing);
  stats.packs = measure_packs(encoded[Split::train], context, task.data.packing,
                              [&](const EncodedText& text) { return std::min(std::ssize(text.ids), context); });
  return stats;
}

PairStats measure_pairs(const PairDataset& pairs, const ExperimentConfig& config) {
  const auto& tokenizer = *pairs.codec().tokenizer;
  const auto longest = context_of(config.model) - 1;  // a mark follows
  PairStats stats;
  describe(stats, tokenizer, pairs.description());
  BySplit<std::vector<Ids>> sources;
  for (const auto split : every_split) {
    std::vector<std::pair<Ids, Ids>> whole;
    for (std::int64_t i = 0; i < pairs.count(split); ++i) {
      const auto pair = pairs.pair(split, i);
      sources[split].push_back(pair.source);
      whole.emplace_back(pair.source, pair.target);
    }
    stats.splits[split] = {.pairs = pairs.count(split),
                           .source = count_tokens(tokenizer, longest, whole, &std::pair<Ids, Ids>::first),
                           .target = count_tokens(tokenizer, longest, whole, &std::pair<Ids, Ids>::second),
                           .copies = count_copies(whole)};
  }
  stats.shared = count_shared(sources);
  stats.padding = padding_fraction(pairs, config);
  return stats;
}

TextStats measure_text(TokenizedText text, const ExperimentConfig& experiment) {
  constexpr std::int64_t shortest_context = 1;  // to measure texts that are too short for the model, too
  const auto& config = *text_data_of(experiment.task);
  const TextDataset dataset(std::move(text), config, shortest_context);
  const auto& tokenizer = *dataset.text().tokenizer;
  TextStats stats;
  stats.task = kind_of(experiment.task);
  stats.path = dataset.text().path.string();
  describe(stats, tokenizer, dataset.text().description);
  for (const auto split : {Split::train, Split::validation}) {
    auto& of_split = stats.splits[split];
    of_split = {.tokens = dataset.tokens(split).size(),
                .unknown_characters = dataset.unknown_characters(split),
                .unigram_entropy = dataset.unigram_entropy(split)};
    const auto* statistics = dataset.statistics(split);
    if (statistics == nullptr) continue;
    of_split.characters = statistics->characters();
    if (const auto unknown = tokenizer.unknown_id()) of_split.unknown_tokens = statistics->count_of(*unknown);
  }
  const auto context = context_of(experiment.model);
  const auto without_target = is<MaskedLanguageModelConfig>(experiment.task) ? 0 : 1;
  const auto pieces = dataset.pieces(Split::train, context, without_target);
  stats.packs = measure_packs(pieces, context, config.packing, &TextPiece::length);
  return stats;
}

Json to_json(const LabelledStats& stats) {
  Json json = {{"task", "classification"}, {"vocabulary", stats.vocabulary}};
  for (const auto split : every_split) {
    const auto& of_split = stats[split];
    if (of_split.texts == 0) continue;
    Json classes;
    for (std::size_t i = 0; i < stats.labels.size(); ++i) classes[stats.labels[i]] = of_split.class_counts[i];
    auto& entry = json["splits"][std::string(to_string(split))];
    entry = {{"texts", of_split.texts}, {"classes", classes}};
    entry.update(to_json(of_split, stats.has_unknown));
    entry["copies"] = of_split.copies;
  }
  json["texts_in_two_splits"] = to_json(stats.shared);
  json["padding"] = {{"unsorted", stats.padding_unsorted}, {"bucketed", stats.padding_bucketed}};
  if (stats.packs) json["packing"] = to_json(*stats.packs);
  json["sources"] = stats.sources;
  return json;
}

Json to_json(const PairStats& stats) {
  Json json;
  for (const auto split : every_split)
    if (const auto& of_split = stats[split]; of_split.pairs > 0)
      json["splits"][std::string(to_string(split))] = {{"pairs", of_split.pairs},
                                                       {"source", to_json(of_split.source, stats.has_unknown)},
                                                       {"target", to_json(of_split.target, stats.has_unknown)},
                                                       {"copies", of_split.copies}};
  json["sources_in_two_splits"] = to_json(stats.shared);
  json["padding"] = stats.padding;
  json["vocabulary"] = stats.vocabulary;
  json["data"] = stats.sources;
  return json;
}

Json to_json(const TextStats& stats) {
  Json json = {{"task", stats.task}, {"vocabulary", stats.vocabulary}};
  for (const auto split : {Split::train, Split::validation}) {
    const auto& of_split = stats[split];
    const auto& characters = of_split.unknown_characters;
    json["splits"][std::string(to_string(split))] = {
        {"characters", of_split.characters},
        {"tokens", of_split.tokens},
        {"unknown_tokens", known_or_null(stats.has_unknown, of_split.unknown_tokens)},
        {"unknown_characters", known_or_null(stats.has_unknown && characters, characters.value_or(0))},
        {"unigram_entropy", of_split.unigram_entropy}};
  }
  if (stats.packs) json["packing"] = to_json(*stats.packs);
  json["sources"] = {{"text", stats.sources}};
  return json;
}

TokenizerReport report_tokenizer(const ExperimentConfig& config, bool offline) {
  if (count_of_numbers(config.task)) fail_usage("task {} has no texts: its tokens are numbers", kind_of(config.task));
  if (const auto* task = std::get_if<SequenceToSequenceConfig>(&config.task)) {
    if (synthetic_options(task->data.synthetic) != nullptr)
      fail_usage("data.synthetic has no texts: its tokens are the numbers of its symbols");
    return measure<TextPair>(load_pair_splits(task->data, offline), task->data, {&TextPair::source, &TextPair::target});
  }
  if (const auto* data = text_data_of(config.task)) {
    if (has_tokens(*data)) fail_usage("the data are tokens, not texts from which a tokenizer could be learned");
    const auto corpus = load_corpus(*data, offline);
    const auto [train, validation] = split_corpus(corpus, *data);
    return measure(make_text_tokenizer(corpus, *data), *data, {{Texts{train}, Texts{validation}}});
  }
  const auto data = labelled_data(config);
  return measure<LabelledText>(load_labelled_splits(data, offline), data, {&LabelledText::text});
}

DataCounts count_data(const ExperimentConfig& config) {
  constexpr bool offline = true;
  DataCounts counts;
  const auto learn = [&](const DataConfig& data, const std::string& training_text) {
    if (is_made_soon(data, training_text))
      counts.vocabulary = obtain_tokenizer(data, training_text, Unknown::map)->vocabulary_size();
  };
  try {
    const auto* data = data_of(config);
    if (data != nullptr && is<PretrainedTokenizerOptions>(data->tokenizer))
      counts.vocabulary = make_tokenizer(data->tokenizer, "")->vocabulary_size();
    if (const auto* text = text_data_of(config.task); text != nullptr && has_tokens(*text)) {
      counts.vocabulary = load_text(*text, offline, nullptr).tokenizer->vocabulary_size();
    } else if (text != nullptr && !is_large(*text)) {
      const auto corpus = load_corpus(*text, offline);
      if (is_made_soon(*text, split_corpus(corpus, *text)[0]))
        counts.vocabulary = make_text_tokenizer(corpus, *text)->vocabulary_size();
    } else if (is<ClassificationConfig>(config.task)) {
      const auto labelled = labelled_data(config);
      const auto splits = load_labelled_splits(labelled, offline);
      std::set<std::string> labels;
      for (const auto& one : splits[Split::train]) labels.insert(one.label);
      counts.classes = std::ssize(labels);
      learn(labelled, joined_texts(splits[Split::train]));
    } else if (const auto* task = std::get_if<SequenceToSequenceConfig>(&config.task);
               task != nullptr && synthetic_options(task->data.synthetic) == nullptr) {
      learn(task->data, joined_texts(load_pair_splits(task->data, offline)[Split::train]));
    }
  } catch (const Error&) {  // training reports it
  }
  return counts;
}

}  // namespace metaformer
