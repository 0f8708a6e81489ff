#include "data/statistics/labelled_stats.h"

#include <algorithm>
#include <unordered_set>

#include "data/datasets/encoded_splits.h"
#include "data/datasets/labelled_dataset.h"
#include "data/packing/packed_order.h"

namespace metaformer {

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

}  // namespace metaformer
