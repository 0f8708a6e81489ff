#pragma once
// What an attention benchmark runs: every mixer and backend of a request at one shape, with its inputs.

#include <functional>
#include <vector>

#include "bench/attention_request.h"

namespace metaformer {

struct AttentionCandidate {
  AttentionResult result;                          // mixer, backend, shape, error, and why it is skipped
  double operations = 0;                           // of a forward call
  std::function<torch::Tensor()> forward = {};     // of one that is not skipped
  std::vector<torch::Tensor> differentiated = {};  // the inputs of a core; none of a layer
  torch::Tensor dy = {};

  // Forward, and where it is asked for, backward: gradients of a layer are added to those of its parameters, as in a
  // training; those of a core's inputs are not kept, so that no sum of large tensors is measured.
  void run(bool backward) const;
  void go_back(const torch::Tensor& y) const;
};

std::vector<AttentionCandidate> make_candidates(const AttentionRequest& request, const AttentionShape& shape,
                                                NormalDraws& draws);

}  // namespace metaformer
