#pragma once
// Which weight decay applies to which part of the parameters.

#include <functional>
#include <vector>

#include "config/optimizer_config.h"
#include "model/parameter_buffer.h"

namespace metaformer {

// Elements [first, first + count) of a parameter buffer.
struct DecayRange {
  std::int64_t first = 0, count = 0;
  double weight_decay = 0;
};

// The ranges of the views that `takes` takes, in their order; neighbours with the same decay are one range, but what
// never decays stays apart from what does. Only matrices decay, tables of embeddings at a rate of their own.
std::vector<DecayRange> decay_ranges(const ParameterBuffer& parameters, const WeightDecayConfig& config,
                                     const std::function<bool(const ParameterBuffer::View&)>& takes);
std::vector<DecayRange> decay_ranges(const ParameterBuffer& parameters, const WeightDecayConfig& config);

// The part of a tensor with the elements of `range` that belongs to a view in it, in the view's shape.
torch::Tensor part_of_range(const torch::Tensor& elements, const DecayRange& range, const ParameterBuffer::View& view);

}  // namespace metaformer
