#include "baselines/reference_accuracies.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/fault.h"
#include "base/log.h"
#include "base/signals.h"
#include "baselines/linear_classifier.h"
#include "data/sources/labelled_source.h"
#include "text/ngram_features.h"
#include "text/word_tokenizer.h"

namespace metaformer {

using Json = nlohmann::ordered_json;

namespace {

std::map<std::string, std::int64_t> number_labels(const std::vector<LabelledText>& texts) {
  std::map<std::string, std::int64_t> labels;
  for (const auto& text : texts) labels.try_emplace(text.label);
  std::int64_t next = 0;
  for (auto& [name, number] : labels) number = next++;
  return labels;
}

// The fraction of each held-out split's texts whose label is the one that `predict` says.
template <class Predict>
Json accuracies(const LabelledSplits& splits, Predict predict) {
  Json result;
  for (const auto split : held_out_splits) {
    const auto& texts = splits[split];
    if (texts.empty()) continue;
    const auto right = std::count_if(texts.begin(), texts.end(), [&](const auto& text) {
      throw_if_stopped();
      return predict(text) == text.label;
    });
    result[std::string(to_string(split))] = static_cast<double>(right) / static_cast<double>(texts.size());
  }
  return result;
}

Json majority_accuracies(const LabelledSplits& splits) {
  std::map<std::string, std::int64_t> counts;
  for (const auto& text : splits[Split::train]) ++counts[text.label];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return accuracies(splits, [&](const LabelledText&) -> const std::string& { return most->first; });
}

// No more buckets than few texts need: every one costs time and memory.
LinearConfig config_for(const std::vector<LabelledText>& texts) {
  constexpr std::size_t few = 1 << 12;
  std::size_t bytes = 0;
  for (const auto& text : texts) bytes += text.text.size();
  auto config = reference_linear_config;
  config.buckets = std::min(config.buckets, static_cast<std::int64_t>(std::bit_ceil(std::max(few, 2 * bytes))));
  return config;
}

Json linear_accuracies(const LabelledSplits& splits) {
  const auto& training = splits[Split::train];
  const auto config = config_for(training);
  const auto words = WordTokenizer::from_text(reference_word_options, joined_texts(training));
  const auto labels = number_labels(training);
  std::vector<std::string> names;
  for (const auto& [name, number] : labels) names.push_back(name);
  const auto features = [&](const LabelledText& text) { return ngram_features(words.encode(text.text), config); };
  std::vector<LabelledFeatures> texts;
  for (const auto& text : training) {
    throw_if_stopped();
    texts.push_back({.features = features(text), .label = labels.at(text.label)});
  }
  const auto weights = fit_linear_classifier(texts, static_cast<std::int64_t>(names.size()), config);
  return accuracies(splits, [&](const LabelledText& text) -> const std::string& {
    const auto logits = weights.logits(features(text));
    return names[static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())];
  });
}

}  // namespace

Json compute_reference_accuracies(const LabelledDataConfig& config, bool offline) {
  stop_point("baselines");
  log::info("baselines: reading the texts for a linear model over words");
  const auto splits = load_labelled_splits(config, offline);
  return {{"majority", majority_accuracies(splits)}, {"linear", linear_accuracies(splits)}};
}

}  // namespace metaformer
