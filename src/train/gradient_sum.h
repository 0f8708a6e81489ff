#pragma once
// Gradients of a step, summed over processes.

#include <torch/csrc/autograd/function.h>

#include "train/optim/optimizer.h"

namespace metaformer {

// Sums the gradients of all processes in buckets of neighbouring parameters, as DistributedDataParallel does (Li et al.
// 2020).
class GradientSum {
 public:
  // The arguments must outlive it. With `shards`, a process receives the summed gradients of its own shard; without
  // (nullptr), the summed gradients of all parameters. A bucket is large enough to be worth a message, and small enough
  // that several can be sent at a time.
  GradientSum(ProcessGroup& group, ParameterBuffer& parameters, const std::vector<Shard>* shards,
              std::int64_t bucket_bytes = 25 << 20);
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // To be called before the last backward pass of a step: complete buckets are sent during the pass. A gradient must be
  // complete as soon as the pass adds to it, so no part of the loss may be recomputed.
  void start_with_backward();

  // To be called by all processes after the last backward pass: sends the rest, and waits for all sums.
  void finish();

  // Forgets a step that was broken off, and removes the hooks, which the next start_with_backward() makes again. To be
  // called before and after the recording of a step: a hook keeps its node of autograd's graph, which adds gradients on
  // the stream on which it was made.
  void reset();

  // Whether the host takes part in every sum: processes exchange the lists of rows of their tables.
  bool needs_host() const { return !tables_.empty(); }

 private:
  struct Bucket {
    std::int64_t offset = 0, count = 0;
    std::vector<std::size_t> views;  // with elements in this bucket
    std::optional<int> root = {};    // the only process that needs the sum
  };

  std::vector<Bucket> buckets_of_views(Decay decay, std::int64_t most) const;
  void add_by_shards(const Bucket& bucket);  // to buckets_
  void complete(std::size_t view);
  void start_next();

  ProcessGroup& group_;
  ParameterBuffer& parameters_;
  const std::vector<Shard>* shards_;
  std::vector<Bucket> buckets_;  // in the order in which all processes send them
  std::vector<const ParameterBuffer::View*> tables_;

  // Hooks of autograd, called when a gradient is complete.
  std::vector<std::pair<std::shared_ptr<torch::autograd::Node>, std::uintptr_t>> hooks_;
  bool is_watching_ = false;
  std::vector<bool> completed_;  // by view
  std::vector<PendingSum> started_;
};

}  // namespace metaformer
