#pragma once
// The program's own CPU kernels beside the operators of LibTorch that they replace.

#include <torch/types.h>

#include <string>
#include <vector>

#include "bench/attention_bench.h"

namespace metaformer {

struct KernelRequest {
  AttentionShape shape;  // of a step; the feed-forward branch is four times as wide inside
  torch::ScalarType type = torch::kFloat;
  std::int64_t rounds = 15;
};

struct KernelResult {
  std::string kernel;
  double ms = 0, library_ms = 0;  // medians over rounds: one forward and backward call
  double ratio = 0;               // to the library's time: the median over rounds
};

// Both sides in turn in every round, on random input, with the threads that LibTorch has.
std::vector<KernelResult> bench_kernels(const KernelRequest& request);

}  // namespace metaformer
