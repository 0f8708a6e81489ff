#pragma once
// What a model sees at once. Padding and packing add no type, only segments.

#include <torch/torch.h>

namespace metaformer {

struct Batch {
  torch::Tensor ids_bc;        // long
  torch::Tensor targets_bc;    // long; -1: no target; undefined for classification
  torch::Tensor segments_bc;   // long; -1: padding; undefined: one segment
  torch::Tensor positions_bc;  // long; undefined: 0, 1, 2, ...
  torch::Tensor labels_b;      // long, classification
  double weight = 0;           // number of targets; known on the host so that losses of several batches can be joined
};

}  // namespace metaformer
