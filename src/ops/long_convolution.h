#pragma once
// A convolution over all tokens before, with a filter of its own for every feature.

#include <torch/types.h>

namespace metaformer {

// y_t = sum_s filter_(t - s) z_s over s <= t, in float32 or wider: of the last `newest` of the tokens z_bed, [b,
// newest, d], in the type of z. `filter_ld`: of distances 0 ... l - 1, l at least e. Undefined segments: all one; else
// only tokens of one segment meet, which stand together. By products of blocks, b d e^2 / 2 in all, so that no token
// depends on a later one, not even by rounding, as it does by a Fourier transform.
torch::Tensor long_convolution(const torch::Tensor& z_bed, const torch::Tensor& filter_ld,
                               const torch::Tensor& segment_be, std::int64_t newest);

}  // namespace metaformer
