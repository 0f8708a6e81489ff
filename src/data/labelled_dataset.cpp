#include "data/labelled_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/random.h"
#include "core/signals.h"
#include "core/text.h"

namespace metaformer {

namespace {

std::optional<std::int64_t> as_integer(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Labels in order: of their values where all are integers, else of their bytes.
std::vector<std::string> sorted_labels(const std::vector<LabelledText>& texts) {
  std::set<std::string> distinct;
  for (const auto& text : texts) distinct.insert(text.label);
  std::vector<std::string> labels(distinct.begin(), distinct.end());
  if (std::all_of(labels.begin(), labels.end(), [](const auto& label) { return as_integer(label).has_value(); }))
    std::stable_sort(labels.begin(), labels.end(),
                     [](const auto& a, const auto& b) { return *as_integer(a) < *as_integer(b); });
  return labels;
}

Codec make_codec(const std::vector<LabelledText>& training, const DataConfig& config) {
  std::string all;
  for (const auto& text : training) {
    all += text.text;
    all += '\n';
  }
  return {.tokenizer = make_tokenizer(config.tokenizer, all, Unknown::map), .labels = sorted_labels(training)};
}

}  // namespace

LabelledDataset::LabelledDataset(const LabelledSplits& splits, const DataConfig& config, std::int64_t context,
                                 Codec codec)
    : codec_(std::move(codec)) {
  if (!codec_.tokenizer) codec_ = make_codec(splits[Split::train], config);
  if (codec_.labels.size() < 2)
    throw Error(ExitCode::data,
                fmt::format("{}: every row has the label {}; classification needs two or more",
                            splits[Split::train].front().place, in_quotes(splits[Split::train].front().label)));
  for (const auto split : {Split::train, Split::validation, Split::test}) {
    auto& encoded = examples_[static_cast<std::size_t>(split)];
    for (const auto& text : splits[split]) {
      throw_if_stopped();
      encoded.push_back(encode(text, context));
    }
    if (split != Split::train)
      std::stable_sort(encoded.begin(), encoded.end(),
                       [](const Example& a, const Example& b) { return a.ids.size() < b.ids.size(); });
  }
}

LabelledDataset::Example LabelledDataset::encode(const LabelledText& text, std::int64_t context) {
  const auto label = std::find(codec_.labels.begin(), codec_.labels.end(), text.label);
  if (label == codec_.labels.end())
    throw Error(ExitCode::data,
                fmt::format("{}: the label {} is not among the {} of the training texts{}", text.place,
                            in_quotes(text.label), codec_.labels.size(), did_you_mean(text.label, codec_.labels)));
  Example example{.ids = codec_.tokenizer->encode(text.text), .label = label - codec_.labels.begin()};
  if (example.ids.empty()) throw Error(ExitCode::data, fmt::format("{}: the text has no token", text.place));
  if (example.ids.size() > static_cast<std::size_t>(context)) {
    example.ids.resize(static_cast<std::size_t>(context));
    ++cut_count_;
  }
  example.ids.shrink_to_fit();
  return example;
}

double LabelledDataset::mean_length() const {
  const auto& training = examples(Split::train);
  const auto tokens = std::accumulate(training.begin(), training.end(), std::size_t{0},
                                      [](std::size_t sum, const Example& e) { return sum + e.ids.size(); });
  return static_cast<double>(tokens) / static_cast<double>(training.size());
}

const std::vector<std::size_t>& LabelledDataset::epoch_order(std::uint64_t seed, std::int64_t epoch) const {
  if (const auto key = std::pair(seed, epoch); order_key_ != key) {
    order_key_ = key;
    const Rng rng(seed, RandomPurpose::batches, static_cast<std::uint64_t>(epoch));
    order_.resize(examples(Split::train).size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    for (auto left = order_.size(); left > 1; --left) std::swap(order_[left - 1], order_[rng.below(left, left)]);
  }
  return order_;
}

LabelledRows LabelledDataset::training_rows(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step,
                                            std::int64_t first, std::int64_t rows) const {
  const auto& training = examples(Split::train);
  const auto size = static_cast<std::int64_t>(training.size());
  std::vector<const Example*> chosen;
  for (auto row = step * rows_per_step + first; chosen.size() < static_cast<std::size_t>(rows); ++row)
    chosen.push_back(&training[epoch_order(seed, row / size)[static_cast<std::size_t>(row % size)]]);
  return batch_of(chosen);
}

LabelledRows LabelledDataset::rows(Split split, std::int64_t first, std::int64_t rows) const {
  const auto last = std::min(first + rows, count(split));
  std::vector<const Example*> chosen;
  for (auto row = first; row < last; ++row) chosen.push_back(&examples(split)[static_cast<std::size_t>(row)]);
  return batch_of(chosen);
}

LabelledRows LabelledDataset::random_rows(Split split, std::uint64_t seed, std::int64_t index,
                                          std::int64_t rows) const {
  const Rng rng(seed, RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
  std::vector<const Example*> chosen;
  for (std::int64_t row = 0; row < rows; ++row)
    chosen.push_back(&examples(split)[rng.below(static_cast<std::uint64_t>(row), examples(split).size())]);
  return batch_of(chosen);
}

LabelledRows LabelledDataset::batch_of(const std::vector<const Example*>& examples) {
  std::vector<std::span<const std::int32_t>> texts;
  for (const auto* example : examples) texts.emplace_back(example->ids);
  auto batch = pad_rows(texts);
  for (const auto* example : examples) batch.labels.push_back(example->label);
  return batch;
}

}  // namespace metaformer
