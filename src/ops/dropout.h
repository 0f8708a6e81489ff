#pragma once
// Dropout (Srivastava et al. 2014).

#include "ops/pass.h"

namespace metaformer {

// In training x with entries set to 0, each with the given probability in [0, 1), and the others divided by 1 -
// probability; otherwise x itself. The mask is that of cpu/dropout.h on every device, and backward draws it again
// in place of keeping it. The first dimension of x is that of the batch's rows, each of which has the mask of its place
// in the step.
torch::Tensor dropout(const torch::Tensor& x, double probability, Pass& pass);

// The same of attention weights, each of which has its place among all that the longest row could have.
torch::Tensor dropout_of_weights(const torch::Tensor& weight_bnce, double probability, Pass& pass);

// Dropout of x_ld, which has a row for each segment of packed rows: row_segment_l2 (long, undefined: one segment a row)
// names the row of the batch and the segment.
torch::Tensor dropout_of_segments(const torch::Tensor& x_ld, const torch::Tensor& row_segment_l2, double probability,
                                  Pass& pass);

// Dropout of a tensor that all rows of the batch share, with one mask.
torch::Tensor dropout_of_shared(const torch::Tensor& x, double probability, Pass& pass);

}  // namespace metaformer
