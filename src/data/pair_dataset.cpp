#include "data/pair_dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "data/epoch_order.h"
#include "data/list_dataset.h"
#include "data/pair_source.h"
#include "text/make_tokenizer.h"
#include "text/symbol_tokenizers.h"

namespace metaformer {

namespace {

// Lists of random symbols, copied or reversed.
class SyntheticPairDataset : public PairDataset {
 public:
  SyntheticPairDataset(const SyntheticPairOptions& options, bool reverses, const ExperimentConfig& config)
      : lists_({.length = options.length, .digits = options.symbols}, "data.synthetic.length, data.synthetic.symbols"),
        options_(options),
        reverses_(reverses),
        seed_(static_cast<std::uint64_t>(config.train.seed)),
        rows_(batches_by_tokens(config.task) ? std::max<std::int64_t>(1, config.train.batch_size / (options.length + 1))
                                             : config.train.batch_size),
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

  double mean_pairs() const override { return static_cast<double>(rows_); }

  std::vector<EncodedPair> training_pairs(std::int64_t step, std::int64_t micro) const override {
    std::vector<EncodedPair> pairs;
    for (auto row = micro * rows_; row < (micro + 1) * rows_; ++row)
      pairs.push_back(pair_of(lists_.random_list(seed_, step, row)));
    return pairs;
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
  std::uint64_t seed_;
  std::int64_t rows_;
  Codec codec_;
};

struct ReadPair {
  EncodedPair ids;
  PairDataset::Texts texts;  // of pairs to evaluate on
};

// As rows have them, with their marks.
PairLength length_of(const EncodedPair& pair, std::int64_t context) {
  const auto [shorter, longer] = std::minmax({row_length(pair.source, context), row_length(pair.target, context)});
  return {.longer = longer, .shorter = shorter};
}

// By which pairs are sorted: equally long targets by their sources.
double sorting_length(const ReadPair& pair) {
  constexpr double longest = 1 << 24;
  return static_cast<double>(pair.ids.target.size()) + static_cast<double>(pair.ids.source.size()) / longest;
}

EncodedPair encode(const TextPair& pair, const Tokenizer& tokenizer) {
  throw_if_stopped();
  const auto encode_side = [&](const std::string& text, const std::string& place, std::string_view side) {
    auto ids = tokenizer.encode(text);
    if (ids.empty()) throw Error(ExitCode::data, fmt::format("{}: the {} has no token", place, side));
    return ids;
  };
  return {.source = encode_side(pair.source, pair.source_place, "source"),
          .target = encode_side(pair.target, pair.target_place, "target")};
}

class TextPairDataset : public PairDataset {
 public:
  TextPairDataset(PairSplits texts, const ExperimentConfig& config, Codec codec)
      : train_(config.train),
        context_(context_of(config.model)),
        codec_(std::move(codec)),
        description_(std::move(texts.description)) {
    const auto& task = std::get<SequenceToSequenceConfig>(config.task);
    if (!codec_.tokenizer)
      codec_.tokenizer = obtain_tokenizer(task.data, joined_texts(texts[Split::train]), Unknown::map);
    for (const auto split : every_split) {
      auto& own = pairs_[static_cast<std::size_t>(split)];
      for (auto& text : texts[split]) {
        auto& pair = own.emplace_back();
        pair.ids = encode(text, *codec_.tokenizer);
        if (split != Split::train) pair.texts = {std::move(text.source), std::move(text.target)};
      }
      if (split == Split::train) leave_out_long(own, context_, texts[split].front().target_place);
      report_cut(own, split, context_);
      if (split != Split::train)
        std::stable_sort(own.begin(), own.end(),
                         [](const auto& a, const auto& b) { return sorting_length(a) > sorting_length(b); });
    }
    plan_batches(task);
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

  double mean_pairs() const override {
    if (!batches_) return static_cast<double>(train_.batch_size);
    return static_cast<double>(count(Split::train)) / static_cast<double>(batches_->batches_per_epoch());
  }

  std::vector<EncodedPair> training_pairs(std::int64_t step, std::int64_t micro) const override {
    std::vector<EncodedPair> found;
    for (const auto item : items_of(step, micro)) found.push_back(pairs(Split::train)[item].ids);
    return found;
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

  std::uint64_t seed() const { return static_cast<std::uint64_t>(train_.seed); }

  void plan_batches(const SequenceToSequenceConfig& task) {
    const auto& own = pairs(Split::train);
    if (task.batch_unit == BatchUnit::token) {
      std::vector<PairLength> lengths;
      for (const auto& pair : own) lengths.push_back(length_of(pair.ids, context_));
      batches_.emplace(std::move(lengths), train_.batch_size, task.bucketing, seed());
    } else {
      std::vector<double> lengths;
      for (const auto& pair : own) lengths.push_back(sorting_length(pair));
      order_.emplace(std::move(lengths), task.bucketing);
    }
  }

  std::vector<std::size_t> items_of(std::int64_t step, std::int64_t micro) const {
    if (batches_) return batches_->batch(step * train_.accumulate + micro);
    std::vector<std::size_t> items;
    const auto of_step = train_.batch_size * train_.accumulate, first = micro * train_.batch_size;
    for (auto row = first; row < first + train_.batch_size; ++row)
      items.push_back(order_->item_at(seed(), order_->place(seed(), step, of_step, row)));
    return items;
  }

  // A target that is cut off would teach where to cut.
  static void leave_out_long(std::vector<ReadPair>& pairs, std::int64_t context, const std::string& first_place) {
    const auto is_long = [&](const auto& pair) { return is_cut(pair.ids.target, context); };
    const auto length = [](const auto& pair) { return pair.ids.target.size(); };
    const auto shortest = length(*std::ranges::min_element(pairs, {}, length));
    const auto count = std::erase_if(pairs, is_long);
    if (count > 0)
      log::info("{} training pairs are left out: their targets do not fit model.context {}", count, context);
    if (pairs.empty())
      throw Error(ExitCode::data,
                  fmt::format("{}: neither this target nor any other fits model.context {}: raise it to at least {}, "
                              "for the shortest with its mark",
                              first_place, context, shortest + 1));
  }

  static void report_cut(const std::vector<ReadPair>& pairs, Split split, std::int64_t context) {
    for (const auto& [name, side] :
         {std::pair("sources", &EncodedPair::source), std::pair("targets", &EncodedPair::target)}) {
      const auto is_long = [&](const auto& pair) { return is_cut(pair.ids.*side, context); };
      if (const auto count = std::count_if(pairs.begin(), pairs.end(), is_long); count > 0)
        log::info("{}: {} of {} {} do not fit model.context {} with their mark, and are cut off", to_string(split),
                  count, pairs.size(), name, context);
    }
  }

  double mean(std::vector<std::int32_t> EncodedPair::*side) const {
    double tokens = 0;
    for (const auto& pair : pairs(Split::train)) tokens += static_cast<double>((pair.ids.*side).size());
    return tokens / static_cast<double>(count(Split::train));
  }

  TrainConfig train_;
  std::int64_t context_;
  Codec codec_;
  nlohmann::ordered_json description_;
  std::array<std::vector<ReadPair>, 3> pairs_;  // by Split

  // One of both: of training pairs, or of batches of tokens.
  std::optional<EpochOrder> order_;
  std::optional<TokenBatches> batches_;
};

}  // namespace

std::shared_ptr<const PairDataset> load_pairs(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto& task = std::get<SequenceToSequenceConfig>(config.task);
  if (const auto* options = synthetic_options(task.data.synthetic))
    return std::make_shared<SyntheticPairDataset>(*options, is<ReversedPairs>(task.data.synthetic), config);
  return std::make_shared<TextPairDataset>(load_pair_splits(task.data, offline), config, std::move(codec));
}

std::int64_t row_length(const std::vector<std::int32_t>& ids, std::int64_t context) {
  return std::min(std::ssize(ids) + 1, context);
}

bool is_cut(const std::vector<std::int32_t>& ids, std::int64_t context) { return std::ssize(ids) >= context; }

// Of all rows, each cut to `context` tokens.
static void append_target(TokenRows& rows, const std::vector<std::int32_t>& target, std::int32_t mark,
                          std::int64_t context) {
  const auto length = row_length(target, context);
  for (std::int64_t place = 0; place < rows.length; ++place) {
    const auto at = [&](std::int64_t i) { return target[static_cast<std::size_t>(i)]; };
    const bool is_used = place < length;
    rows.ids.push_back(!is_used || place == 0 ? mark : at(place - 1));
    rows.targets.push_back(!is_used ? -1 : place < std::ssize(target) ? at(place) : mark);
    rows.segments.push_back(is_used ? 0 : -1);
  }
  rows.target_count += length;
}

PairRows to_rows(const std::vector<EncodedPair>& pairs, std::int32_t mark, std::int64_t context) {
  std::vector<std::vector<std::int32_t>> sources;
  PairRows rows;
  for (const auto& pair : pairs) {
    auto& source = sources.emplace_back(pair.source);
    truncate(source, context - 1, Truncation::head);
    source.push_back(mark);
    rows.target.length = std::max(rows.target.length, row_length(pair.target, context));
  }
  rows.source = pad_rows({sources.begin(), sources.end()});
  rows.target.rows = std::ssize(pairs);
  for (const auto& pair : pairs) append_target(rows.target, pair.target, mark, context);
  if (rows.target.target_count == rows.target.rows * rows.target.length) rows.target.segments.clear();
  return rows;
}

}  // namespace metaformer
