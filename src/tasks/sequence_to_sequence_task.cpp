// The task of making one sequence from another: translation, summaries, copying and reversing.

#include <cmath>

#include "base/random.h"
#include "data/pairs.h"
#include "tasks/batches.h"
#include "tasks/make_task.h"

namespace metaformer {

namespace {

class PairStream : public RowStream {
 public:
  PairStream(const ExperimentConfig& config, std::shared_ptr<const PairDataset> pairs)
      : RowStream(config.train, context_of(config.model)),
        accumulate_(static_cast<double>(config.train.accumulate)),
        mark_(static_cast<std::int32_t>(pairs->codec().tokenizer->vocabulary_size())),
        pairs_(std::move(pairs)) {}

  double tokens_per_step() const override { return pairs_per_step() * pairs_->mean_tokens(); }

  double epochs_per_step() const override {
    const auto of_epoch = pairs_->pairs_of_epoch();
    return of_epoch ? pairs_per_step() / static_cast<double>(*of_epoch) : 0;
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    return to_pair_batch(pairs_->training_pairs(step, micro), device);
  }

  bool has(Split split) const override { return count(split) > 0; }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    require(split);
    const Rng rng(seed(), RandomPurpose::evaluation, static_cast<std::uint64_t>(index));
    std::vector<EncodedPair> pairs;
    for (std::uint64_t row = 0; static_cast<double>(row) < pairs_->mean_pairs(); ++row)
      pairs.push_back(
          pairs_->pair(split, static_cast<std::int64_t>(rng.below(row, static_cast<std::uint64_t>(count(split))))));
    return to_pair_batch(pairs, device);
  }

 private:
  std::int64_t count(Split split) const override { return pairs_->count(split); }

  Batch batch_of(Split split, std::int64_t first, std::int64_t rows, torch::Device device) const override {
    std::vector<EncodedPair> pairs;
    for (auto row = first; row < first + rows; ++row) pairs.push_back(pairs_->pair(split, row));
    return to_pair_batch(pairs, device);
  }

  std::int64_t tokens_of(Split split, std::int64_t first, std::int64_t rows) const override {
    std::int64_t tokens = 0;
    for (auto row = first; row < first + rows; ++row) {
      const auto pair = pairs_->pair(split, row);
      tokens += metaformer::row_length(pair.source, row_length()) + metaformer::row_length(pair.target, row_length());
    }
    return tokens;
  }

  double pairs_per_step() const { return accumulate_ * pairs_->mean_pairs(); }

  Batch to_pair_batch(const std::vector<EncodedPair>& pairs, torch::Device device) const {
    return to_batch(to_rows(pairs, mark_, row_length()), device, row_length());
  }

  double accumulate_;
  std::int32_t mark_;
  std::shared_ptr<const PairDataset> pairs_;
};

Scores pair_report(const TokenScores& scores, Split) {
  return {{"loss", scores.loss},         {"perplexity", std::exp(scores.loss)},
          {"accuracy", scores.accuracy}, {"exact_match", scores.exact_match},
          {"pairs", scores.rows},        {"targets", scores.targets}};
}

}  // namespace

Task make_sequence_to_sequence_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto pairs = load_pairs(config, offline, std::move(codec));
  const auto& task = std::get<SequenceToSequenceConfig>(config.task);
  return {.codec = {pairs, &pairs->codec()},
          .description = pairs->description(),
          .summary = pairs->summary(),
          .batches = std::make_shared<PairStream>(config, pairs),
          .objective = token_objective(task.label_smoothing),
          .measures = std::make_shared<TokenMeasures>(pair_report, std::vector<std::string>{"accuracy", "exact_match"},
                                                      /*by_row=*/true),
          .pairs = pairs};
}

}  // namespace metaformer
