#pragma once
// Time, memory and accuracy of mixers by themselves.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/attention_core.h"
#include "bench/timing.h"
#include "config/mixer_config.h"

namespace metaformer {

// What an attention benchmark is asked for, and what it answers.
struct AttentionRequest {
  std::vector<AttentionShape> shapes;
  std::vector<MixerConfig> mixers;  // each with its backend
  bool core = false;                // without projections, on inputs as bench/attention_core.h draws them
  bool library = false;     // and LibTorch's scaled dot product attention, by each of its backends; of cores only
  bool pair_table = false;  // the published algorithm beside them
  torch::ScalarType type = torch::kFloat;
  bool tf32 = false;  // on CUDA float32 may be multiplied as tf32, as with train.precision: tf32
  bool causal = true;
  bool backward = true;
  std::int64_t rounds = 5;
  torch::Device device = torch::kCPU;
  // What records work; nothing: CUDA graphs on a CUDA device.
  std::function<std::unique_ptr<DeviceGraph>()> make_graph = {};
};

struct AttentionResult {
  std::string mixer, backend;
  AttentionShape shape;
  std::string skipped;         // why it was not run, or ""
  double predicted_bytes = 0;  // of what did not fit, where that is why
  double ms = 0;               // median, one call of forward, or of forward and backward
  TimedBy timed_by = TimedBy::clock;
  double teraflops = 0;         // per second, backward counted as two forwards; 0 where nothing is counted
  std::int64_t peak_bytes = 0;  // above inputs and parameters, in one call
  std::int64_t kept_bytes = 0;  // between forward and backward, the output included
  std::optional<double> error;  // of the output, relative to float64; where a float64 reference is affordable
};

// Time, memory and accuracy of token mixers by themselves, backend by backend.

// Every mixer at every shape, a whole layer (projections included) or its core, on random input. The rounds of timing
// are interleaved, so that a noisy moment hits all alike; each measures as many calls as take a millisecond. `progress`
// gets a line for every shape that is done, and for every row that is not timed as a graph, with the reason.
std::vector<AttentionResult> bench_attention(const AttentionRequest& request,
                                             const std::function<void(const std::string&)>& progress);

}  // namespace metaformer
