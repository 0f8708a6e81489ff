#pragma once
// The task of making one sequence from another.

#include "config/experiment_config.h"
#include "data/pairs.h"
#include "tasks/task.h"

namespace metaformer {

// Describes pairs of sequences, and gives them to who wants the texts.
class PairData : public TaskData {
 public:
  explicit PairData(std::shared_ptr<const PairDataset> pairs) : pairs_(std::move(pairs)) {}

  const PairDataset& pairs() const { return *pairs_; }
  const Codec& codec() const override { return pairs_->codec(); }
  nlohmann::ordered_json description() const override { return pairs_->description(); }
  std::string summary() const override { return pairs_->summary(); }

 private:
  std::shared_ptr<const PairDataset> pairs_;
};

// One sequence from another: translation, summaries, copying and reversing.

// Its metrics have exact_match: the fraction of targets of which every token is the likeliest, given the true ones
// before it, so that greedy generation writes them. Errors: exit codes 2 and 3.
Task make_sequence_to_sequence_task(const ExperimentConfig& config, bool offline, Codec codec);

}  // namespace metaformer
