#pragma once
// Time, memory and accuracy of token mixers by themselves, backend by backend.

#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/mixer_config.h"

namespace metaformer {

struct AttentionShape {
  std::int64_t batch = 4, heads = 4, context = 256, head_width = 32;
  std::int64_t width() const { return heads * head_width; }
};

struct AttentionRequest {
  std::vector<AttentionShape> shapes;
  std::vector<MixerConfig> mixers;  // each with its backend
  bool pair_table = false;          // the published algorithm beside them
  torch::ScalarType type = torch::kFloat;
  bool causal = true;
  bool backward = true;
  std::int64_t rounds = 5;
  torch::Device device = torch::kCPU;
};

struct AttentionResult {
  std::string mixer, backend;
  AttentionShape shape;
  std::string skipped;          // why it was not run, or ""
  double predicted_bytes = 0;   // of what made it be skipped
  double ms = 0;                // median, one call of forward, or of forward and backward
  double teraflops = 0;         // per second, backward counted as two forwards; 0 where nothing is counted
  std::int64_t peak_bytes = 0;  // above inputs and parameters, in one call
  std::int64_t kept_bytes = 0;  // between forward and backward, the output included
  std::optional<double> error;  // of the output, relative to float64; where a float64 reference is affordable
};

// Floating-point operations of a forward call, projections included; of what a causal mask hides none.
double forward_operations(const MixerConfig& mixer, const AttentionShape& shape, bool causal);

// Every mixer at every shape, a whole layer (projections included) on random input. The rounds of timing are
// interleaved, so that a noisy moment hits all alike. `progress` is told what is done.
std::vector<AttentionResult> bench_attention(const AttentionRequest& request,
                                             const std::function<void(const std::string&)>& progress);

}  // namespace metaformer
