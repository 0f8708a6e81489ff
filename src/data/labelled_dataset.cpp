#include "data/labelled_dataset.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace metaformer {

namespace {

// Random streams for a purpose, separate from those of places.
constexpr auto beyond_places = std::uint64_t{1} << 63;

void sort_by_falling_length(std::vector<EncodedText>& texts, std::vector<std::size_t>& order) {
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return texts[a].ids.size() > texts[b].ids.size(); });
  std::vector<EncodedText> sorted;
  for (const auto place : order) sorted.push_back(std::move(texts[place]));
  texts = std::move(sorted);
}

}  // namespace

BatchOptions BatchOptions::of(const ExperimentConfig& config) {
  const auto& task = classification(config);
  return {.context = context_of(config.model),
          .truncation = task.truncation,
          .sampling = sampling_of(task.data.tokenizer),
          .token_removal = task.token_removal,
          .token_unknown = task.token_unknown,
          .bucketing = task.bucketing,
          .packing = task.data.packing};
}

LabelledDataset::LabelledDataset(EncodedSplits splits, const BatchOptions& options)
    : splits_(std::move(splits)), options_(options) {
  if (options.token_unknown > 0 && !codec().tokenizer->unknown_id())
    throw Error(ExitCode::usage, "task.token_unknown: this tokenizer has no unknown token; set it to 0");
  const auto context = static_cast<std::size_t>(options.context);
  for (const auto split : every_split) {
    auto& texts = splits_[split];
    cut_count_ +=
        std::count_if(texts.begin(), texts.end(), [&](const auto& text) { return text.ids.size() > context; });
    auto& order = source_order_[static_cast<std::size_t>(split)];
    order.resize(texts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (split != Split::train) sort_by_falling_length(texts, order);
  }
  std::vector<double> expected;
  for (const auto& text : texts(Split::train)) expected.push_back(expected_length(text));
  order_.emplace(std::move(expected), options.bucketing);
  if (packing_options(options.packing) != nullptr) packs_.emplace(lengths(), options.context, options.packing);
}

// Noise makes a text shorter at most.
std::vector<std::int64_t> LabelledDataset::lengths() const {
  std::vector<std::int64_t> lengths;
  for (const auto& text : texts(Split::train)) lengths.push_back(std::min(std::ssize(text.ids), options_.context));
  return lengths;
}

double LabelledDataset::expected_length(const EncodedText& text) const {
  return std::min(static_cast<double>(text.ids.size()) * (1 - options_.token_removal),
                  static_cast<double>(options_.context));
}

double LabelledDataset::mean_length() const {
  const auto& training = texts(Split::train);
  const auto tokens = std::accumulate(training.begin(), training.end(), 0.0,
                                      [&](double sum, const auto& text) { return sum + expected_length(text); });
  return tokens / static_cast<double>(training.size());
}

std::vector<std::int32_t> LabelledDataset::noisy_ids(const EncodedText& text, std::uint64_t seed,
                                                     std::int64_t place) const {
  const auto stream = static_cast<std::uint64_t>(place);
  auto ids = options_.sampling == 0
                 ? text.ids
                 : codec().tokenizer->encode_sampled(text.text, options_.sampling,
                                                     Rng(seed, RandomPurpose::noise, beyond_places + stream));
  const double removal = options_.token_removal, either = removal + options_.token_unknown;
  if (either == 0) return ids;
  const Rng rng(seed, RandomPurpose::noise, stream);
  const auto unknown = codec().tokenizer->unknown_id().value_or(0);
  const auto first = ids.front();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double draw = rng.uniform(i);
    if (draw < removal) continue;
    ids[kept++] = draw < either ? unknown : ids[i];
  }
  ids.resize(kept);
  if (ids.empty()) ids.push_back(first);
  return ids;
}

LabelledRows LabelledDataset::training_rows(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step,
                                            std::int64_t first, std::int64_t rows) const {
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::int64_t> labels;
  for (auto row = first; row < first + rows; ++row) {
    const auto place = order_->place(seed, step, rows_per_step, row);
    const auto& text = texts(Split::train)[order_->item_at(seed, place)];
    ids.push_back(noisy_ids(text, seed, place));
    truncate(ids.back(), options_.context, options_.truncation);
    labels.push_back(text.label);
  }
  auto batch = pad_rows({ids.begin(), ids.end()});
  batch.labels = std::move(labels);
  return batch;
}

LabelledRows LabelledDataset::training_packs(std::uint64_t seed, std::int64_t first, std::int64_t rows) const {
  std::vector<std::vector<std::vector<std::int32_t>>> packs;
  std::vector<std::int64_t> labels;
  for (auto place = first; place < first + rows; ++place) {
    auto& pack = packs.emplace_back();
    for (const auto index : packs_->at(seed, place)) {
      const auto& text = texts(Split::train)[index];
      const auto of_epochs = place / packs_->packs() * count(Split::train) + static_cast<std::int64_t>(index);
      pack.push_back(noisy_ids(text, seed, of_epochs));
      truncate(pack.back(), options_.context, options_.truncation);
      labels.push_back(text.label);
    }
  }
  auto batch = pack_rows(packs);
  batch.labels = std::move(labels);
  return batch;
}

LabelledRows LabelledDataset::rows(Split split, std::int64_t first, std::int64_t rows) const {
  const auto last = std::min(first + rows, count(split));
  std::vector<const EncodedText*> chosen;
  for (auto row = first; row < last; ++row) chosen.push_back(&texts(split)[static_cast<std::size_t>(row)]);
  return batch_of(chosen);
}

// The order of the first epoch.
LabelledRows LabelledDataset::distinct_training_rows(std::uint64_t seed, std::int64_t first, std::int64_t rows) const {
  const auto last = std::min(first + rows, count(Split::train));
  std::vector<const EncodedText*> chosen;
  for (auto place = first; place < last; ++place) chosen.push_back(&texts(Split::train)[order_->item_at(seed, place)]);
  return batch_of(chosen);
}

LabelledRows LabelledDataset::random_rows(Split split, std::uint64_t seed, std::int64_t index,
                                          std::int64_t rows) const {
  const Rng rng(seed, RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
  std::vector<const EncodedText*> chosen;
  for (std::int64_t row = 0; row < rows; ++row)
    chosen.push_back(&texts(split)[rng.below(static_cast<std::uint64_t>(row), texts(split).size())]);
  return batch_of(chosen);
}

LabelledRows LabelledDataset::batch_of(const std::vector<const EncodedText*>& texts) const {
  std::vector<std::vector<std::int32_t>> ids;
  for (const auto* text : texts) {
    ids.push_back(text->ids);
    truncate(ids.back(), options_.context, options_.truncation);
  }
  auto batch = pad_rows({ids.begin(), ids.end()});
  for (const auto* text : texts) batch.labels.push_back(text->label);
  return batch;
}

}  // namespace metaformer
