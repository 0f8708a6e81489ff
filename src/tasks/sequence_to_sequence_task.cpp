// The task of making one sequence from another: translation, summaries, copying and reversing.

#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "data/pairs.h"
#include "tasks/batches.h"
#include "tasks/make_task.h"

namespace metaformer {

namespace {

class PairData : public TaskData {
 public:
  explicit PairData(std::shared_ptr<const PairDataset> pairs) : pairs_(std::move(pairs)) {}

  const Codec& codec() const override { return pairs_->codec(); }
  nlohmann::ordered_json description() const override { return pairs_->description(); }
  std::string summary() const override { return pairs_->summary(); }

 private:
  std::shared_ptr<const PairDataset> pairs_;
};

class PairStream : public BatchStream {
 public:
  PairStream(const ExperimentConfig& config, std::shared_ptr<const PairDataset> pairs)
      : train_(config.train),
        context_(context_of(config.model)),
        mark_(static_cast<std::int32_t>(pairs->codec().tokenizer->vocabulary_size())),
        pairs_(std::move(pairs)) {}

  double tokens_per_step() const override { return pairs_per_step() * pairs_->mean_tokens(); }

  double epochs_per_step() const override {
    const auto of_epoch = pairs_->pairs_of_epoch();
    return of_epoch ? pairs_per_step() / static_cast<double>(*of_epoch) : 0;
  }

  Batch training_batch(std::int64_t step, std::int64_t micro, torch::Device device) const override {
    return batch_of(pairs_->training_pairs(step, micro), device);
  }

  bool has(Split split) const override { return pairs_->count(split) > 0; }

  std::int64_t evaluation_batches(Split split) const override {
    require(split);
    const auto rows = evaluation_rows(context_);
    return (pairs_->count(split) + rows - 1) / rows;
  }

  Batch evaluation_batch(Split split, std::int64_t index, torch::Device device) const override {
    return batch_of(evaluation_pairs(split, index), device);
  }

  std::int64_t evaluation_tokens(Split split, std::int64_t index) const override {
    std::int64_t tokens = 0;
    for (const auto& pair : evaluation_pairs(split, index))
      tokens += row_length(pair.source, context_) + row_length(pair.target, context_);
    return tokens;
  }

  Batch random_batch(Split split, std::int64_t index, torch::Device device) const override {
    require(split);
    const Rng rng(static_cast<std::uint64_t>(train_.seed), RandomPurpose::evaluation,
                  static_cast<std::uint64_t>(index));
    const auto count = static_cast<std::uint64_t>(pairs_->count(split));
    std::vector<EncodedPair> pairs;
    for (std::uint64_t row = 0; static_cast<double>(row) < pairs_->mean_pairs(); ++row)
      pairs.push_back(pairs_->pair(split, static_cast<std::int64_t>(rng.below(row, count))));
    return batch_of(pairs, device);
  }

 private:
  double pairs_per_step() const { return static_cast<double>(train_.accumulate) * pairs_->mean_pairs(); }

  std::vector<EncodedPair> evaluation_pairs(Split split, std::int64_t index) const {
    const auto rows = evaluation_rows(context_), end = std::min((index + 1) * rows, pairs_->count(split));
    std::vector<EncodedPair> pairs;
    for (auto row = index * rows; row < end; ++row) pairs.push_back(pairs_->pair(split, row));
    return pairs;
  }

  Batch batch_of(const std::vector<EncodedPair>& pairs, torch::Device device) const {
    return to_batch(to_rows(pairs, mark_, context_), device, context_);
  }

  void require(Split split) const {
    if (!has(split)) throw Error(ExitCode::usage, "there is no test split: this run's data.test_path is not set");
  }

  TrainConfig train_;
  std::int64_t context_;
  std::int32_t mark_;
  std::shared_ptr<const PairDataset> pairs_;
};

// Cross-entropy of the next token of the target, with smoothed targets.
class SmoothedTokenObjective : public Objective {
 public:
  explicit SmoothedTokenObjective(double smoothing) : smoothing_(smoothing) {}

  torch::Tensor loss(const torch::Tensor& logits_bcv, const Batch& batch) const override {
    return token_loss(logits_bcv, batch.targets_bc, smoothing_);
  }

 private:
  double smoothing_;
};

class PairMetrics : public Metrics {
 public:
  void score(const torch::Tensor& logits_bcv, const Batch& batch, ScoreSums& sums) const override {
    score_tokens(logits_bcv, batch, sums);
    const auto right_b = (logits_bcv.argmax(2) == batch.targets_bc).logical_or(batch.targets_bc < 0).all(1);
    sums.add("exact", right_b.sum());
    sums.add("pairs", torch::ones_like(right_b).sum());
  }

  nlohmann::ordered_json report(const ScoreSums& sums, Split) const override {
    const double weight = sums.item("weight"), pairs = sums.item("pairs"), loss = sums.item("loss") / weight;
    return {{"loss", loss},
            {"perplexity", std::exp(loss)},
            {"accuracy", sums.item("correct") / weight},
            {"exact_match", sums.item("exact") / pairs},
            {"pairs", static_cast<std::int64_t>(pairs)},
            {"targets", static_cast<std::int64_t>(weight)}};
  }

  std::vector<std::string> headline() const override { return {"accuracy", "exact_match"}; }
};

}  // namespace

Task make_sequence_to_sequence_task(const ExperimentConfig& config, bool offline, Codec codec) {
  const auto pairs = load_pairs(config, offline, std::move(codec));
  const auto& task = std::get<SequenceToSequenceConfig>(config.task);
  return {.data = std::make_shared<PairData>(pairs),
          .batches = std::make_shared<PairStream>(config, pairs),
          .objective = std::make_shared<SmoothedTokenObjective>(task.label_smoothing),
          .metrics = std::make_shared<PairMetrics>(),
          .pairs = pairs};
}

}  // namespace metaformer
