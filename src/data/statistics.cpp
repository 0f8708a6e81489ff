#include "data/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <unordered_set>

#include "data/encoded.h"
#include "data/epoch_order.h"
#include "data/labelled_dataset.h"
#include "data/text_dataset.h"

namespace metaformer {

LengthStats measure_lengths(std::vector<std::int64_t> lengths) {
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  const auto percentile = [&](std::size_t percent) {
    const auto rank = (lengths.size() * percent + 99) / 100;  // rounded up, counted from 1
    return lengths[rank - 1];
  };
  const auto sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return {.mean = static_cast<double>(sum) / static_cast<double>(lengths.size()),
          .median = percentile(50),
          .percentile_90 = percentile(90),
          .percentile_95 = percentile(95),
          .percentile_99 = percentile(99),
          .longest = lengths.back()};
}

nlohmann::ordered_json to_json(const LengthStats& lengths) {
  return {{"mean", lengths.mean},         {"median", lengths.median},     {"p90", lengths.percentile_90},
          {"p95", lengths.percentile_95}, {"p99", lengths.percentile_99}, {"longest", lengths.longest}};
}

namespace {

using TextSet = std::unordered_set<std::string_view>;

void count_copies(const LabelledSplits& splits, LabelledStats& stats) {
  std::array<TextSet, 3> sets;
  for (const auto split : every_split) {
    const auto at = static_cast<std::size_t>(split);
    for (const auto& text : splits[split])
      if (!sets[at].insert(text.text).second) ++stats.splits[at].copies;
  }
  const auto shared = [&](Split split, Split other) {
    return std::count_if(splits[split].begin(), splits[split].end(), [&](const LabelledText& text) {
      return sets[static_cast<std::size_t>(other)].contains(text.text);
    });
  };
  stats.validation_in_train = shared(Split::validation, Split::train);
  stats.test_in_train = shared(Split::test, Split::train);
  stats.test_in_validation = shared(Split::test, Split::validation);
}

void count_tokens(const std::vector<EncodedText>& texts, const Codec& codec, std::int64_t context, SplitStats& stats) {
  const auto unknown = codec.tokenizer->unknown_id();
  std::vector<std::int64_t> lengths;
  stats.texts = static_cast<std::int64_t>(texts.size());
  stats.class_counts.resize(codec.labels.size());
  for (const auto& text : texts) {
    lengths.push_back(static_cast<std::int64_t>(text.ids.size()));
    ++stats.class_counts[static_cast<std::size_t>(text.label)];
    stats.all_tokens += lengths.back();
    if (unknown) stats.unknown_tokens += std::count(text.ids.begin(), text.ids.end(), *unknown);
    stats.cut += lengths.back() > context;
  }
  stats.tokens = measure_lengths(std::move(lengths));
}

// Of the first epoch.
double padding_share(const LabelledDataset& dataset, const TrainConfig& train) {
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

// The same of only the training texts, without noise.
double padding_share(const EncodedSplits& splits, const ExperimentConfig& config, std::int64_t bucketing) {
  EncodedSplits training;  // no tokenizer: nothing is cut anew
  training[Split::train] = splits[Split::train];
  const LabelledDataset dataset(
      std::move(training),
      {.context = context_of(config.model), .truncation = classification(config).truncation, .bucketing = bucketing});
  return padding_share(dataset, config.train);
}

nlohmann::ordered_json to_json(const SplitStats& split, const LabelledStats& stats) {
  nlohmann::ordered_json classes;
  for (std::size_t i = 0; i < stats.labels.size(); ++i) classes[stats.labels[i]] = split.class_counts[i];
  nlohmann::ordered_json json = {{"texts", split.texts},
                                 {"classes", classes},
                                 {"tokens", split.all_tokens},
                                 {"tokens_per_text", to_json(split.tokens)},
                                 {"cut_at_context", split.cut}};
  json["unknown_tokens"] = stats.has_unknown ? nlohmann::ordered_json(split.unknown_tokens) : nullptr;
  json["copies"] = split.copies;
  return json;
}

}  // namespace

LabelledStats measure_labelled_texts(LabelledSplits splits, const ExperimentConfig& config) {
  LabelledStats stats;
  stats.sources = splits.description;
  count_copies(splits, stats);
  auto encoded = encode_splits(std::move(splits), classification(config).data, Codec{});
  stats.labels = encoded.codec.labels;
  stats.vocabulary = encoded.codec.tokenizer->vocabulary_size();
  stats.has_unknown = encoded.codec.tokenizer->unknown_id().has_value();
  for (const auto split : every_split)
    count_tokens(encoded[split], encoded.codec, context_of(config.model),
                 stats.splits[static_cast<std::size_t>(split)]);
  stats.padding_unsorted = padding_share(encoded, config, 1);
  stats.padding_bucketed = padding_share(encoded, config, classification(config).bucketing);
  const auto& packing = classification(config).data.packing;
  if (packing_options(packing) == nullptr) return stats;
  const auto context = context_of(config.model);
  std::vector<std::int64_t> lengths;
  for (const auto& text : encoded[Split::train]) lengths.push_back(std::min(std::ssize(text.ids), context));
  stats.packs = measure_packing(lengths, context, packing);
  return stats;
}

nlohmann::ordered_json to_json(const LabelledStats& stats) {
  nlohmann::ordered_json json = {{"task", "classification"}, {"vocabulary", stats.vocabulary}};
  for (const auto split : every_split)
    if (stats[split].texts > 0) json["splits"][std::string(to_string(split))] = to_json(stats[split], stats);
  json["texts_in_two_splits"] = {{"validation_in_train", stats.validation_in_train},
                                 {"test_in_train", stats.test_in_train},
                                 {"test_in_validation", stats.test_in_validation}};
  json["padding"] = {{"unsorted", stats.padding_unsorted}, {"bucketed", stats.padding_bucketed}};
  if (stats.packs) json["packing"] = to_json(*stats.packs);
  json["sources"] = stats.sources;
  return json;
}

namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

SideStats measure_side(const PairDataset& pairs, Split split, Ids EncodedPair::*side, std::int64_t context) {
  const auto unknown = pairs.codec().tokenizer->unknown_id();
  SideStats stats;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < pairs.count(split); ++i) {
    const auto pair = pairs.pair(split, i);
    const auto& ids = pair.*side;
    lengths.push_back(std::ssize(ids));
    stats.all_tokens += lengths.back();
    stats.cut += is_cut(ids, context);
    if (unknown) stats.unknown_tokens += std::count(ids.begin(), ids.end(), *unknown);
  }
  stats.tokens = measure_lengths(std::move(lengths));
  return stats;
}

void count_copies(const PairDataset& pairs, PairStats& stats) {
  std::array<std::set<Ids>, 3> sources;
  const auto at = [](Split split) { return static_cast<std::size_t>(split); };
  for (const auto split : every_split) {
    std::set<std::pair<Ids, Ids>> seen;
    for (std::int64_t i = 0; i < pairs.count(split); ++i) {
      auto pair = pairs.pair(split, i);
      sources[at(split)].insert(pair.source);
      if (!seen.emplace(std::move(pair.source), std::move(pair.target)).second) ++stats.splits[at(split)].copies;
    }
  }
  const auto shared = [&](Split split, Split other) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < pairs.count(split); ++i)
      count += sources[at(other)].contains(pairs.pair(split, i).source);
    return count;
  };
  stats.validation_in_train = shared(Split::validation, Split::train);
  stats.test_in_train = shared(Split::test, Split::train);
  stats.test_in_validation = shared(Split::test, Split::validation);
}

// Of the first epoch.
double padding_share(const PairDataset& pairs, const ExperimentConfig& config) {
  const auto context = context_of(config.model), accumulate = config.train.accumulate;
  const auto batches = std::max(1.0, std::round(static_cast<double>(pairs.count(Split::train)) / pairs.mean_pairs()));
  std::int64_t places = 0, tokens = 0;
  for (std::int64_t i = 0; static_cast<double>(i) < batches; ++i) {
    const auto batch = pairs.training_pairs(i / accumulate, i % accumulate);
    std::int64_t longest_source = 0, longest_target = 0;
    for (const auto& pair : batch) {
      const auto source = row_length(pair.source, context), target = row_length(pair.target, context);
      longest_source = std::max(longest_source, source);
      longest_target = std::max(longest_target, target);
      tokens += source + target;
    }
    places += std::ssize(batch) * (longest_source + longest_target);
  }
  return 1 - static_cast<double>(tokens) / static_cast<double>(places);
}

Json to_json(const SideStats& side, bool has_unknown) {
  return {{"tokens", side.all_tokens},
          {"tokens_per_text", to_json(side.tokens)},
          {"cut_at_context", side.cut},
          {"unknown_tokens", has_unknown ? Json(side.unknown_tokens) : Json(nullptr)}};
}

}  // namespace

PairStats measure_pairs(const PairDataset& pairs, const ExperimentConfig& config) {
  const auto& tokenizer = *pairs.codec().tokenizer;
  PairStats stats{.vocabulary = tokenizer.vocabulary_size(),
                  .has_unknown = tokenizer.unknown_id().has_value(),
                  .sources = pairs.description()};
  const auto context = context_of(config.model);
  for (const auto split : every_split) {
    auto& of_split = stats.splits[static_cast<std::size_t>(split)];
    of_split.pairs = pairs.count(split);
    of_split.source = measure_side(pairs, split, &EncodedPair::source, context);
    of_split.target = measure_side(pairs, split, &EncodedPair::target, context);
  }
  count_copies(pairs, stats);
  stats.padding = padding_share(pairs, config);
  return stats;
}

Json to_json(const PairStats& stats) {
  Json json;
  for (const auto split : every_split)
    if (const auto& of_split = stats[split]; of_split.pairs > 0)
      json["splits"][std::string(to_string(split))] = {{"pairs", of_split.pairs},
                                                       {"source", to_json(of_split.source, stats.has_unknown)},
                                                       {"target", to_json(of_split.target, stats.has_unknown)},
                                                       {"copies", of_split.copies}};
  json["sources_in_two_splits"] = {{"validation_in_train", stats.validation_in_train},
                                   {"test_in_train", stats.test_in_train},
                                   {"test_in_validation", stats.test_in_validation}};
  json["padding"] = stats.padding;
  json["vocabulary"] = stats.vocabulary;
  json["data"] = stats.sources;
  return json;
}

static PackStats measure_documents(const TextDataset& dataset, const ExperimentConfig& config) {
  const auto context = context_of(config.model);
  std::vector<std::int64_t> lengths;
  for (const auto& piece : !is<MaskedLanguageModelConfig>(config.task)
                               ? dataset.pieces_with_targets(Split::train, context)
                               : dataset.pieces(Split::train, context))
    lengths.push_back(piece.length);
  return measure_packing(lengths, context, text_data_of(config.task)->packing);
}

TextStats measure_text(const Corpus& corpus, const ExperimentConfig& experiment) {
  constexpr std::int64_t shortest_context = 1;  // a text too short for the model has its numbers too
  const auto& config = *text_data_of(experiment.task);
  std::shared_ptr<const Tokenizer> tokenizer;
  const TextDataset dataset(corpus, config, shortest_context, tokenizer);
  const auto unknown = tokenizer->unknown_id();
  TextStats stats{.task = std::string(kind_of(experiment.task)),
                  .path = corpus.path.string(),
                  .source = corpus.description,
                  .vocabulary = tokenizer->vocabulary_size(),
                  .has_unknown = unknown.has_value(),
                  .splits = {}};
  for (const auto split : {Split::train, Split::validation}) {
    const auto& tokens = dataset.tokens(split);
    stats.splits[static_cast<std::size_t>(split)] = {
        .characters = dataset.characters(split),
        .tokens = static_cast<std::int64_t>(tokens.size()),
        .unknown_tokens = unknown ? std::count(tokens.begin(), tokens.end(), *unknown) : 0,
        .unknown_characters = dataset.unknown_characters(split),
        .unigram_entropy = dataset.unigram_entropy(split)};
  }
  if (packing_options(config.packing) != nullptr) stats.packs = measure_documents(dataset, experiment);
  return stats;
}

nlohmann::ordered_json to_json(const TextStats& stats) {
  nlohmann::ordered_json json = {{"task", stats.task}, {"vocabulary", stats.vocabulary}};
  for (const auto split : {Split::train, Split::validation}) {
    auto& entry = json["splits"][std::string(to_string(split))];
    entry = {{"characters", stats[split].characters}, {"tokens", stats[split].tokens}};
    entry["unknown_tokens"] = stats.has_unknown ? nlohmann::ordered_json(stats[split].unknown_tokens) : nullptr;
    const auto& characters = stats[split].unknown_characters;
    entry["unknown_characters"] = stats.has_unknown && characters ? nlohmann::ordered_json(*characters) : nullptr;
    entry["unigram_entropy"] = stats[split].unigram_entropy;
  }
  if (stats.packs) json["packing"] = to_json(*stats.packs);
  json["sources"] = {{"text", stats.source}};
  return json;
}

}  // namespace metaformer
