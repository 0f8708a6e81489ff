#pragma once
// Reversible blocks (Gomez, Ren, Urtasun, Grosse 2017; Reformer, section 3). There are two streams, each as wide as the
// model. Both begin as the embeddings, and the result is their mean. Forward computes y, backward x:
//   y1 = x1 + mixer(x2)    y2 = x2 + feed_forward(y1)          with norms and dropout, as in plain blocks
//   x2 = y2 - feed_forward(y1)    x1 = y1 - mixer(x2)
// Training keeps the two streams after the last block: backward recomputes the inputs of every block, from the last to
// the first, with the same random numbers and choices.

#include <functional>
#include <vector>

#include "model/block.h"

namespace metaformer {

// The surroundings of a block, given its number and the input of its mixer; called once for each block, in their order.
using SurroundingsOf = std::function<BlockImpl::Surroundings(std::size_t block, const torch::Tensor& x_bcd)>;

// How gradients are computed. by_inversion: from the streams after the last block. as_usual: by autograd from
// everything that the blocks have computed, including what a probe observes.
enum class BlockGradients { by_inversion, as_usual };

// The mean of both streams after the last block.
torch::Tensor through_reversible(std::vector<Block>& blocks, const torch::Tensor& x_bcd,
                                 const SurroundingsOf& surroundings_of, BlockGradients gradients, Pass& pass);

}  // namespace metaformer
