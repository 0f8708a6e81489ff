#pragma once
// Times of the program's own kernels, and of the operators of LibTorch that they replace.

#include <torch/types.h>

#include <string>
#include <vector>

#include "bench/attention_bench.h"

namespace metaformer {

struct KernelRequest {
  AttentionShape shape;  // of a step; the feed-forward branch is four times as wide inside
  torch::ScalarType type = torch::kFloat;
  torch::Device device = torch::kCPU;  // a GPU: for bench/step_kernel_bench.h
  std::int64_t rounds = 15;
};

struct KernelResult {
  std::string kernel;
  double ms = 0, library_ms = 0;  // medians over rounds: one forward and backward call
  double ratio = 0;               // to the library's time: the median over rounds
};

// Measures both in turn in every round, on random input on the CPU, with LibTorch's number of threads.
std::vector<KernelResult> bench_kernels(const KernelRequest& request);

}  // namespace metaformer
