#pragma once
// A pre-norm feed-forward branch with its residual connection as one node of the graph: what lies between its parts is
// neither a node nor kept, unless backward needs it.

#include <torch/types.h>

#include "config/model_config.h"
#include "ops/pass.h"

namespace metaformer {

// Tensors that are undefined: no bias.
struct FeedForwardBranch {
  const NormConfig& norm;
  torch::Tensor gain_d, norm_bias_d;
  const FeedForwardConfig& feed_forward;  // without an activation at its end
  torch::Tensor up_hd, up_bias_h;         // gated: twice as many rows as hidden features
  torch::Tensor down_dh, down_bias_d;
  double dropout = 0;
};

// Whether this pass can take the branch as one node: it trains on the CPU, in float32 or under bfloat16's autocast.
bool can_add_feed_forward(const torch::Tensor& x_bcd, const FeedForwardBranch& branch);

// x + dropout(down(f(up(norm(x))))), byte for byte what the parts compute one by one. Draws once where there is
// dropout.
torch::Tensor add_feed_forward(const torch::Tensor& x_bcd, const FeedForwardBranch& branch, Pass& pass);

}  // namespace metaformer
