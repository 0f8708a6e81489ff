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
  torch::Device device = torch::kCPU;  // a GPU: for bench_step_kernels
  std::int64_t rounds = 15;
};

struct KernelResult {
  std::string kernel;
  double ms = 0, library_ms = 0;  // medians over rounds: one forward and backward call
  double ratio = 0;               // to the library's time: the median over rounds
};

// Measures both in turn in every round, on random input on the CPU, with LibTorch's number of threads.
std::vector<KernelResult> bench_kernels(const KernelRequest& request);

// The same for the kernels of a step on a GPU (bench/step_kernel_bench.cpp), as recorded graphs if possible. Residual
// sum and norm: both passes of layer norm, with and without dropout. Bias and activation: both passes, plain and gated.
// Rotary positions: both passes for queries. Metric attention: both passes with the short backward pass, and with the
// usual one in place of operators; in 16 bits. Embeddings: both passes, for the same vocabularies as the loss. The
// loss: both passes, for the tokens of the shape and vocabularies of characters and of GPT-2. The update: norm,
// clipping and AdamW of ten million weights; with 16-bit products also with copies of the weights (ops/autocast.h), and
// both passes of a linear layer that reads such a copy.
std::vector<KernelResult> bench_step_kernels(const KernelRequest& request);

}  // namespace metaformer
