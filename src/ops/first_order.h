#pragma once
// Operators whose backward pass is code of our own.

#include <torch/torch.h>

namespace metaformer {

// Their gradients have no history: what is asked to have one (create_graph) is refused, not given a wrong one. For the
// start of a backward pass; throws c10::Error.
inline void require_first_order(const char* operation) {
  TORCH_CHECK(!torch::GradMode::is_enabled(), operation,
              " has no second derivatives: call backward without create_graph");
}

}  // namespace metaformer
