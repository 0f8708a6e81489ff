#include "data/datasets/encoded_splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/digest.h"
#include "base/error.h"
#include "base/signals.h"
#include "base/text.h"
#include "text/tokenizer_cache.h"

namespace metaformer {

namespace {

std::optional<std::int64_t> as_integer(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Labels in order: by value if all are integers, else by bytes.
std::vector<std::string> sorted_labels(const std::vector<LabelledText>& texts) {
  std::set<std::string> distinct;
  for (const auto& text : texts) distinct.insert(text.label);
  std::vector<std::string> labels(distinct.begin(), distinct.end());
  if (std::all_of(labels.begin(), labels.end(), [](const auto& label) { return as_integer(label).has_value(); }))
    std::stable_sort(labels.begin(), labels.end(),
                     [](const auto& a, const auto& b) { return *as_integer(a) < *as_integer(b); });
  return labels;
}

EncodedText encode(LabelledText&& text, const Codec& codec, bool keep_text) {
  const auto label = std::find(codec.labels.begin(), codec.labels.end(), text.label);
  if (label == codec.labels.end())
    throw Error(ExitCode::data,
                fmt::format("{}: the label {} is not among the {} of the training texts{}", text.place,
                            in_quotes(text.label), codec.labels.size(), did_you_mean(text.label, codec.labels)));
  EncodedText encoded{.ids = codec.tokenizer->encode(text.text), .label = label - codec.labels.begin(), .text = {}};
  if (encoded.ids.empty()) throw Error(ExitCode::data, fmt::format("{}: the text has no token", text.place));
  encoded.ids.shrink_to_fit();
  if (keep_text) encoded.text = std::move(text.text);
  return encoded;
}

}  // namespace

double sampling_of(const TokenizerOptions& options) {
  const auto* unigram = std::get_if<UnigramTokenizerOptions>(&options);
  return unigram == nullptr ? 0 : unigram->sampling;
}

EncodedSplits encode_splits(LabelledSplits splits, const LabelledDataConfig& config, Codec codec) {
  EncodedSplits encoded{
      .codec = std::move(codec), .texts = {}, .description = std::move(splits.description), .text_digests = {}};
  const auto& training = splits[Split::train];
  if (!encoded.codec.tokenizer)
    encoded.codec.tokenizer = obtain_tokenizer(config, joined_texts(training), Unknown::map);
  if (encoded.codec.labels.empty()) encoded.codec.labels = sorted_labels(training);
  if (encoded.codec.labels.size() < 2)
    throw Error(ExitCode::data, fmt::format("{}: every row has the label {}; classification needs two or more",
                                            training.front().place, in_quotes(training.front().label)));
  for (const auto split : every_split) {
    const bool keep_texts = split == Split::train && sampling_of(config.tokenizer) > 0;
    auto& digest = encoded.text_digests[static_cast<std::size_t>(split)];
    for (auto& text : splits[split]) {
      throw_if_stopped();
      digest = sha256(digest + sha256(text.text));
      encoded[split].push_back(encode(std::move(text), encoded.codec, keep_texts));
    }
  }
  return encoded;
}

}  // namespace metaformer
