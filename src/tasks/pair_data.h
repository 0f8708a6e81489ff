#pragma once
// Describes pairs of sequences, and gives them to who wants the texts.

#include "data/datasets/pair_dataset.h"
#include "tasks/task_data.h"

namespace metaformer {

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

}  // namespace metaformer
