#pragma once
// Dropout (Srivastava et al. 2014).

#include "ops/pass.h"

namespace metaformer {

// In training sets each entry of x to 0 with the given probability in [0, 1), and divides the others by 1 -
// probability; otherwise returns x itself. The mask is that of cpu/dropout.h on every device; backward draws it again
// instead of keeping it. The first dimension of x is the rows of the batch; the mask of a row depends on its index in
// the step.
torch::Tensor dropout(const torch::Tensor& x, double probability, Pass& pass);

// Dropout of attention weights. The place of a weight in the mask does not depend on the lengths of the rows.
torch::Tensor dropout_of_weights(const torch::Tensor& weight_bnce, double probability, Pass& pass);

// Dropout of x_ld, which has a row for each segment of packed rows: row_segment_l2 (long, undefined: one segment a row)
// gives the row of the batch and the segment.
torch::Tensor dropout_of_segments(const torch::Tensor& x_ld, const torch::Tensor& row_segment_l2, double probability,
                                  Pass& pass);

// Dropout of a tensor that all rows of the batch share, with one mask.
torch::Tensor dropout_of_shared(const torch::Tensor& x, double probability, Pass& pass);

}  // namespace metaformer
