#include "data/statistics/text_stats.h"

#include <algorithm>

#include "data/datasets/text_dataset.h"
#include "data/packing/packed_order.h"

namespace metaformer {

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
