#pragma once
// What stands near the tokens of a batch.

#include "model/batch.h"

namespace metaformer {

// The id of the token that stands `distance` places behind each token, or before it where that is negative, in the same
// segment, [b, c]; -1: there is none, or the token is padding.
torch::Tensor ids_at_distance(const Batch& batch, std::int64_t distance);

}  // namespace metaformer
