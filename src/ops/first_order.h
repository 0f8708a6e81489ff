#pragma once
// Operators whose backward pass is code of our own.

#include <torch/types.h>

namespace metaformer {

// To be called at the start of their backward pass. Gradients that such a pass computes cannot be differentiated again:
// with create_graph it throws c10::Error, where second derivatives would be wrong.
inline void require_first_order(const char* operation) {
  TORCH_CHECK(!torch::GradMode::is_enabled(), operation,
              " has no second derivatives: call backward without create_graph");
}

}  // namespace metaformer
