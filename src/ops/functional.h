#pragma once
// Functions of rows with gradients: by the kernels of cpu/ or cuda/ (ops/fused_functional.h) if these support the
// device and type, else by LibTorch's operators. Kernels give the same bits whatever the number of threads.

#include <torch/types.h>

#include "config/model_config.h"
#include "cpu/activation.h"

namespace metaformer {

// The activation function in the form that the kernels take.
ActivationFunction function_of(const ActivationConfig& f);

// f(x + bias) for every element; any shape. The bias has the size of the last dimension; undefined: 0. On the CPU a
// kernel computes it while gradients are recorded.
torch::Tensor activate(const ActivationConfig& f, const torch::Tensor& x, const torch::Tensor& bias = {});

// f(gate) * up for x + bias = [..., gate | up], both of the same width h (Shazeer 2020): [..., h].
torch::Tensor gate(const ActivationConfig& f, const torch::Tensor& x, const torch::Tensor& bias = {});

// Whether activate() and gate() add this bias in their kernels, so that the linear layer before should leave it out.
bool activation_adds_bias(const torch::Tensor& bias);

// RMS normalisation (Zhang and Sennrich 2019): x / sqrt(mean x^2 + epsilon) * gain over the last dimension d; gain_d:
// [d]. Statistics in float32 or wider, and the result in the wider type of x and gain_d. There is a kernel for float32.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& gain_d, double epsilon);

// The rotation of queries and keys by their position (rotary position embedding, Su et al. 2021), in the layout of
// halves: features l and l + r of a head are a pair, as in GPT-NeoX and LLaMA. Row c of cos_cr and sin_cr has the
// angles of token c of x_bnck (float32, or float64 for such x). Rotates only the first 2 r features.
torch::Tensor rotate_pairs(const torch::Tensor& x_bnck, const torch::Tensor& cos_cr, const torch::Tensor& sin_cr);

// The rows of table_vd with the numbers `ids`, in the shape of the ids with d more. On a GPU a kernel adds the gradient
// of the table in a fixed order.
torch::Tensor embed(const torch::Tensor& table_vd, const torch::Tensor& ids);

// The loss of predicted tokens, summed over the rows whose target is not -1: -sum_v q_v log softmax(x)_v, where q
// spreads `smoothing` evenly over all v and gives the rest to the target (torch's label_smoothing). There is a kernel
// for float32 on the CPU, and one for all types but float64 on a GPU (ops/fused_cross_entropy.h).
torch::Tensor cross_entropy_sum(const torch::Tensor& logits_tv, const torch::Tensor& targets_t, double smoothing = 0);

}  // namespace metaformer
