#pragma once
// Gradients of a step, summed over processes.

#include <torch/csrc/autograd/function.h>

#include "train/optim/optimizer.h"

namespace metaformer {

// Adds up the gradients of all processes, neighbours in the buffer at once, as DistributedDataParallel does (Li et al.
// 2020).
class GradientSum {
 public:
  // The arguments must outlive it. With `shards`, a process receives the summed gradients of its own shard; without
  // (nullptr), the summed gradients of all parameters. A bucket is large enough to be worth a message, small enough for
  // several to be under way.
  GradientSum(ProcessGroup& group, ParameterBuffer& parameters, const std::vector<Shard>* shards,
              std::int64_t bucket_bytes = 25 << 20);
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // Before the last backward pass of a step: what it has completed is sent while it goes on. A gradient must then be
  // complete when the pass first adds to it, so no part of the loss may be computed again.
  void start_with_backward();

  // After the last backward pass: sends the rest, and waits for all of it. To be called by all processes.
  void finish();

 private:
  struct Bucket {
    std::int64_t offset = 0, count = 0;
    std::vector<std::size_t> views;  // that have elements in it
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
