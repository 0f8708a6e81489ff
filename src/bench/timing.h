#pragma once
// Clocks of benchmarks.

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "ops/device.h"

namespace metaformer {

// From an idle device until `work` is done on it.
template <class Work>
double milliseconds_of(torch::Device device, Work work) {
  wait_for(device);
  const auto start = std::chrono::steady_clock::now();
  work();
  wait_for(device);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// At least one value; of an even number the upper of the two in the middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace metaformer
