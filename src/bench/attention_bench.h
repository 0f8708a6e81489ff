#pragma once
// Time, memory and accuracy of token mixers by themselves, backend by backend.

#include <functional>
#include <string>
#include <vector>

#include "bench/attention_request.h"

namespace metaformer {

// Every mixer at every shape, a whole layer (projections included) or its core, on random input. The rounds of timing
// are interleaved, so that a noisy moment hits all alike; each measures as many calls as take a millisecond. `progress`
// gets a line for every shape that is done, and for every row that is not timed as a graph, with the reason.
std::vector<AttentionResult> bench_attention(const AttentionRequest& request,
                                             const std::function<void(const std::string&)>& progress);

}  // namespace metaformer
