#pragma once
// Which parts of a config's training step take the fast path on the CPU (docs/performance.md).

#include <torch/types.h>

#include <string>
#include <vector>

#include "config/experiment_config.h"

namespace metaformer {

struct FastPath {
  std::string part;     // "attention", "mixer_output" or "feed_forward"; of recurrent models "recurrence"
  std::string why_not;  // empty: it is taken
};

// Attention: by ops/host_attention.h. The end of the mixer's branch and the feed-forward branch: as one node of the
// graph each (ops/added_linear.h, ops/feed_forward_branch.h). Recurrence: oneDNN computes a whole layer. Nothing for
// other models.
std::vector<FastPath> fast_paths(const ExperimentConfig& config, torch::Device device);

}  // namespace metaformer
