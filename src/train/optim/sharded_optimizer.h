#pragma once
// An optimiser whose state several processes share (ZeRO stage 1, Rajbhandari et al. 2020).

#include "config/train_config.h"
#include "distributed/process_group.h"
#include "model/parameters.h"
#include "train/optim/optimizer.h"

namespace metaformer {

// Elements [first, first + count) of a parameter buffer, which one process updates.
struct Shard {
  std::int64_t first = 0, count = 0;
};

// Of every rank, as equal as they can be: Muon's matrices stay whole.
std::vector<Shard> shards_of(const ParameterBuffer& parameters, const TrainConfig& config, int size);

// Each process has the state of its shard and updates it; then all get the values of all. All functions are to be
// called by all processes.
class ShardedOptimizer : public Optimizer {
 public:
  // Keeps references.
  ShardedOptimizer(ParameterBuffer& parameters, const TrainConfig& config, const GradientScale& scale,
                   ProcessGroup& group);

  void step(const LearningRate& learning_rate) override;
  void reset() override { own_->reset(); }

  // Of all shards, in copies on the CPU, as an optimiser that is not sharded names and shapes it.
  NamedTensors state() const override;
  void load(const NamedTensors& state) override;
  std::string first_not_finite() const override;

  const std::vector<Shard>& shards() const { return shards_; }

 private:
  const Shard& own_shard() const { return shards_[static_cast<std::size_t>(group_.rank())]; }
  const ParameterBuffer::View* view_of(const std::string& name) const;  // whose state has that name

  ParameterBuffer& parameters_;
  ProcessGroup& group_;
  std::vector<Shard> shards_;
  ParameterBuffer shard_;  // own
  std::unique_ptr<Optimizer> own_;
};

}  // namespace metaformer
