#pragma once
// Functions of rows with gradients, by the kernels of cpu/ where they know the device and type, else by the library's
// operators. Kernels give the same bits whatever the number of threads.

#include <torch/types.h>

#include "config/model_config.h"
#include "cpu/activation.h"

namespace metaformer {

// As the kernels know it.
ActivationFunction function_of(const ActivationConfig& f);

// f(x) of every element; any shape. By a kernel where a gradient will be asked for.
torch::Tensor activate(const ActivationConfig& f, const torch::Tensor& x);

// f(gate) * up for x = [..., gate | up], both of the same width h (Shazeer 2020): [..., h].
torch::Tensor gate(const ActivationConfig& f, const torch::Tensor& x);

// RMS normalisation (Zhang and Sennrich 2019): x / sqrt(mean x^2 + epsilon) * gain over the last dimension d; gain_d:
// [d]. Statistics in float32 or wider, and the result in the wider type of x and gain_d. A kernel has float32.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& gain_d, double epsilon);

// The rotation of queries and keys by their position (rotary position embedding, Su et al. 2021), in the layout of
// halves: features l and l + r of a head are a pair, as in GPT-NeoX and LLaMA. x_bnck of tokens in order, the angles of
// token c given by cos_cr and sin_cr (float32, or float64 for such x). Rotates the first 2 r features only.
torch::Tensor rotate_pairs(const torch::Tensor& x_bnck, const torch::Tensor& cos_cr, const torch::Tensor& sin_cr);

// The loss of predicted tokens, summed over the rows whose target is not -1: -sum_v q_v log softmax(x)_v, where q
// spreads `smoothing` evenly over all v, the rest goes to the target (torch's label_smoothing). A kernel has float32.
torch::Tensor cross_entropy_sum(const torch::Tensor& logits_tv, const torch::Tensor& targets_t, double smoothing = 0);

}  // namespace metaformer
