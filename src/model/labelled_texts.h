#pragma once
// The labelled texts of a batch: its rows or, where texts are packed, segments of them.

#include "model/batch.h"

namespace metaformer {

// The row of the batch that each labelled text is in, of x with the batch's rows in front: [b, ...] to [l, ...].
torch::Tensor rows_of_texts(const torch::Tensor& x, const Batch& batch);

// Which tokens of that row belong to the text, [l, c] bool. For batches with segments.
torch::Tensor tokens_of_texts_lc(const Batch& batch);

// The mean over each text's tokens, [l, d], in float32 at least; zeros where there are none.
torch::Tensor mean_over_tokens(const torch::Tensor& x_bcd, const Batch& batch);

// The greatest value of each feature, likewise.
torch::Tensor greatest_over_tokens(const torch::Tensor& x_bcd, const Batch& batch);

// The vector of the first token of each text, [l, d].
torch::Tensor first_vectors(const torch::Tensor& x_bcd, const Batch& batch);

}  // namespace metaformer
