#include "data/datasets/pair_dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "data/datasets/epoch_order.h"
#include "data/datasets/list_dataset.h"
#include "data/sources/parallel_source.h"
#include "text/number_tokenizer.h"
#include "text/tokenizer_cache.h"

namespace metaformer {

namespace {

// Lists of random symbols, copied or reversed.
class SyntheticPairDataset : public PairDataset {
 public:
  SyntheticPairDataset(const SyntheticPairOptions& options, bool reverses)
      : lists_({.length = options.length, .digits = options.symbols}),
        options_(options),
        reverses_(reverses),
        codec_{.tokenizer = std::make_unique<NumberTokenizer>(options.symbols), .labels = {}} {}

  const Codec& codec() const override { return codec_; }

  nlohmann::ordered_json description() const override {
    return {{"generator", reverses_ ? ReversedPairs::kind : CopiedPairs::kind},
            {"symbols", options_.symbols},
            {"length", options_.length},
            {"validation_pairs", count(Split::validation)}};
  }

  std::string summary() const override {
    return fmt::format("{} random symbols out of {} to {} ({} held out)", options_.length, options_.symbols,
                       reverses_ ? "reverse" : "copy", count(Split::validation));
  }

  double mean_tokens() const override { return 2 * static_cast<double>(options_.length + 1); }
  std::optional<std::int64_t> pairs_of_epoch() const override { return std::nullopt; }

  EncodedPair training_pair(std::uint64_t seed, std::int64_t step, std::int64_t, std::int64_t row) const override {
    return pair_of(lists_.random_list(seed, step, row));
  }

  std::int64_t count(Split split) const override { return lists_.list_count(split); }
  EncodedPair pair(Split split, std::int64_t index) const override {
    return pair_of(lists_.lists(split)[static_cast<std::size_t>(index)]);
  }
  Texts texts(Split split, std::int64_t index) const override {
    const auto of_ids = pair(split, index);
    return {codec_.tokenizer->decode(of_ids.source), codec_.tokenizer->decode(of_ids.target)};
  }

 private:
  EncodedPair pair_of(const std::vector<std::int32_t>& list) const {
    EncodedPair pair{.source = list, .target = list};
    if (reverses_) std::reverse(pair.target.begin(), pair.target.end());
    return pair;
  }

  ListDataset lists_;
  SyntheticPairOptions options_;
  bool reverses_;
  Codec codec_;
};

struct ReadPair {
  EncodedPair ids;
  PairDataset::Texts texts;  // of pairs to evaluate on
};

// By which pairs are sorted: equally long targets by their sources.
double sorting_length(const ReadPair& pair) {
  constexpr double longest = 1 << 24;
  return static_cast<double>(pair.ids.target.size()) + static_cast<double>(pair.ids.source.size()) / longest;
}

EncodedPair encode(const TextPair& pair, const Tokenizer& tokenizer) {
  throw_if_stopped();
  EncodedPair encoded{.source = tokenizer.encode(pair.source), .target = tokenizer.encode(pair.target)};
  for (const auto& [side, ids] : {std::pair("source", &encoded.source), std::pair("target", &encoded.target)})
    if (ids->empty()) throw Error(ExitCode::data, fmt::format("{}: the {} has no token", pair.place, side));
  return encoded;
}

class TextPairDataset : public PairDataset {
 public:
  TextPairDataset(PairSplits texts, const SequenceToSequenceConfig& task, std::int64_t context, Codec codec)
      : codec_(std::move(codec)), description_(std::move(texts.description)) {
    if (!codec_.tokenizer)
      codec_.tokenizer = obtain_tokenizer(task.data, joined_texts(texts[Split::train]), Unknown::map);
    for (const auto split : every_split) {
      auto& own = pairs_[static_cast<std::size_t>(split)];
      for (auto& text : texts[split]) {
        auto& pair = own.emplace_back();
        pair.ids = encode(text, *codec_.tokenizer);
        if (split != Split::train) pair.texts = {std::move(text.source), std::move(text.target)};
      }
      if (split == Split::train) leave_out_long(own, context);
      if (split != Split::train)
        std::stable_sort(own.begin(), own.end(),
                         [](const auto& a, const auto& b) { return sorting_length(a) > sorting_length(b); });
    }
    std::vector<double> lengths;
    for (const auto& pair : pairs(Split::train)) lengths.push_back(sorting_length(pair));
    order_.emplace(std::move(lengths), task.bucketing);
  }

  const Codec& codec() const override { return codec_; }
  nlohmann::ordered_json description() const override { return description_; }

  std::string summary() const override {
    return fmt::format(
        "{} pairs to train on, {} for validation, {} for test; {} tokens; {:.1f} of a source, {:.1f} of a "
        "target",
        count(Split::train), count(Split::validation), count(Split::test), codec_.tokenizer->vocabulary_size(),
        mean(&EncodedPair::source), mean(&EncodedPair::target));
  }

  double mean_tokens() const override { return mean(&EncodedPair::source) + mean(&EncodedPair::target) + 2; }
  std::optional<std::int64_t> pairs_of_epoch() const override { return count(Split::train); }

  EncodedPair training_pair(std::uint64_t seed, std::int64_t step, std::int64_t rows_per_step,
                            std::int64_t row) const override {
    return pairs(Split::train)[order_->item_at(seed, order_->place(seed, step, rows_per_step, row))].ids;
  }

  std::int64_t count(Split split) const override { return std::ssize(pairs(split)); }
  EncodedPair pair(Split split, std::int64_t index) const override {
    return pairs(split)[static_cast<std::size_t>(index)].ids;
  }
  // Those of training pairs are decoded.
  Texts texts(Split split, std::int64_t index) const override {
    const auto& pair = pairs(split)[static_cast<std::size_t>(index)];
    if (split != Split::train) return pair.texts;
    return {codec_.tokenizer->decode(pair.ids.source), codec_.tokenizer->decode(pair.ids.target)};
  }

 private:
  const std::vector<ReadPair>& pairs(Split split) const { return pairs_[static_cast<std::size_t>(split)]; }

  // A target that is cut off would teach where to cut.
  static void leave_out_long(std::vector<ReadPair>& pairs, std::int64_t context) {
    const auto is_long = [&](const auto& pair) { return std::ssize(pair.ids.target) >= context; };
    const auto count = std::erase_if(pairs, is_long);
    if (count > 0)
      log::info("{} training pairs are left out: their targets do not fit model.context {}", count, context);
    if (pairs.empty())
      throw Error(ExitCode::data,
                  fmt::format("no target of the training pairs fits model.context {}: raise it", context));
  }

  double mean(std::vector<std::int32_t> EncodedPair::*side) const {
    double tokens = 0;
    for (const auto& pair : pairs(Split::train)) tokens += static_cast<double>((pair.ids.*side).size());
    return tokens / static_cast<double>(count(Split::train));
  }

  Codec codec_;
  nlohmann::ordered_json description_;
  std::array<std::vector<ReadPair>, 3> pairs_;  // by Split
  std::optional<EpochOrder> order_;             // of training pairs
};

}  // namespace

std::shared_ptr<const PairDataset> load_pairs(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto& task = std::get<SequenceToSequenceConfig>(config.task);
  if (const auto* options = synthetic_options(task.data.synthetic))
    return std::make_shared<SyntheticPairDataset>(*options, is<ReversedPairs>(task.data.synthetic));
  return std::make_shared<TextPairDataset>(load_pair_splits(task.data, offline), task, context_of(config.model),
                                           std::move(codec));
}

}  // namespace metaformer
