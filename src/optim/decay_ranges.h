#pragma once
// Which weight decay and which factor of the learning rate apply to which part of the parameters.

#include <functional>
#include <vector>

#include "config/optimizer_config.h"
#include "model/parameter_buffer.h"

namespace metaformer {

// Elements [first, first + count) of a parameter buffer.
struct DecayRange {
  std::int64_t first = 0, count = 0;
  double weight_decay = 0;
  double rate = 1;  // factor of the learning rate
};

// The ranges of the views that `takes` takes, in their order, without frozen ones; neighbours with the same decay and
// rate are one range, but what never decays stays apart from what does. Only matrices decay, tables of embeddings at a
// rate of their own.
std::vector<DecayRange> decay_ranges(const ParameterBuffer& parameters, const WeightDecayConfig& config,
                                     const std::function<bool(const ParameterBuffer::View&)>& takes);
std::vector<DecayRange> decay_ranges(const ParameterBuffer& parameters, const WeightDecayConfig& config);

// A learning rate, a number or a tensor, for a range. Without a factor a tensor stays the very one that it is.
template <class Rate>
Rate rate_of(const DecayRange& range, const Rate& learning_rate) {
  return range.rate == 1 ? learning_rate : learning_rate * range.rate;
}

// The part of a tensor with the elements of `range` that belongs to a view in it, in the view's shape.
torch::Tensor part_of_range(const torch::Tensor& elements, const DecayRange& range, const ParameterBuffer::View& view);

}  // namespace metaformer
