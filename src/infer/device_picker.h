#pragma once
// Picks tokens where the logits are, without the host.

#include <torch/types.h>

#include "infer/sampling_options.h"

namespace metaformer {

// The token that TokenPicker picks from each row of logits_bv, with one uniform number (float64, in [0, 1)) a row: long
// [b], on the device of the logits. The sums of weights may be rounded differently on a device, so that a number within
// about 1e-15 of the edge between two tokens may pick the other. Starts work only; nothing waits for it. `never_n`:
// options.never on the device of the logits; undefined where there are none.
torch::Tensor pick_tokens_b(const torch::Tensor& logits_bv, const torch::Tensor& uniform_b,
                            const SamplingOptions& options, const torch::Tensor& never_n = {});

}  // namespace metaformer
