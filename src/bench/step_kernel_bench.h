#pragma once
// Times of the GPU kernels of residual sums with the next norm, of the loss and of the update of weights, and of the
// operators that they replace.

#include <vector>

#include "bench/kernel_bench.h"

namespace metaformer {

// Measures both in turn in every round, as recorded graphs if possible. Residual sum and norm: both passes of layer
// norm, with and without dropout. The loss: both passes, for the tokens of the shape and vocabularies of characters and
// of GPT-2. The update: norm, clipping and AdamW of ten million weights.
std::vector<KernelResult> bench_step_kernels(const KernelRequest& request);

}  // namespace metaformer
