#pragma once
// The cross-entropy of rows of logits on the CPU: each pass reads a row once from memory, and the softmax is stored
// nowhere. The library's operators store it, and with label smoothing add three gradients of its size.
//
// Elements are float. exp is within 2 units in the last place; sums of a row are float in sixteen lanes.

#include <cstdint>

namespace metaformer {

struct LogitRows {
  const float* logits;
  const std::int64_t* targets;  // -1: none, a loss and gradient of 0
  std::int64_t rows, width;
  double smoothing;  // s: the target's probability is 1 - s + s / width, that of others s / width
};

// Computes for every row with a target: greatest = max x, log_sums = log sum exp(x - greatest), losses = -sum q log
// softmax. The first two stay apart: their sum would lose digits where logits are large.
void cross_entropy_rows(const LogitRows& rows, float* greatest, float* log_sums, double* losses);

// gradient = factor (softmax - q), the gradient with respect to the logits of `factor` times the sum of the losses.
void cross_entropy_gradients(const LogitRows& rows, const float* greatest, const float* log_sums, float factor,
                             float* gradient);

}  // namespace metaformer
