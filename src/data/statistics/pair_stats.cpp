#include "data/statistics/pair_stats.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace metaformer {

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

}  // namespace metaformer
