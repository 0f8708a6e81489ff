#pragma once
// The loss of predicted tokens.

#include <torch/types.h>

namespace metaformer {

// Summed over the rows whose target is not -1: -sum_v q_v log softmax(x)_v, where q spreads `smoothing` evenly over all
// v and gives the rest to the target (torch's label_smoothing). Float32 on the CPU is one node, whose sum does not
// depend on the number of threads.
torch::Tensor cross_entropy_sum(const torch::Tensor& logits_tv, const torch::Tensor& targets_t, double smoothing = 0);

}  // namespace metaformer
