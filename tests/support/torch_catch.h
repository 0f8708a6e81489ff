#pragma once
// torch and Catch2 together. torch defines its own CHECK; without the #undef tests would assert nothing.
#include <torch/types.h>
#undef CHECK
#include "support/catch.h"

namespace metaformer {

inline double relative_error(const torch::Tensor& value, const torch::Tensor& expected) {
  const auto difference = (value.to(torch::kDouble) - expected.to(torch::kDouble)).norm().item<double>();
  const auto size = expected.to(torch::kDouble).norm().item<double>();
  return size == 0 ? difference : difference / size;
}

}  // namespace metaformer
