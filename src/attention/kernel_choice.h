#pragma once
// Which backend computes metric and quadratic attention if model.mixer.backend is auto. On a GPU: the kernels of cuda/
// if they are right and expected to be faster; else in bfloat16 and float16 LibTorch's attention with two kernels
// around it (ops/library_metric.h), if possible; else composed products. The rule between the first and the last was
// measured on an H200 (docs/metric_attention.md).

#include <torch/types.h>

#include <algorithm>
#include <string>

#include "attention/mixer.h"
#include "config/model_config.h"
#include "config/train_config.h"
#include "ops/fused_metric.h"
#include "ops/pass.h"

namespace metaformer {

// The possible use of kernels, as a mixer's options and shape determine it.
struct KernelUse {
  Backend backend = Backend::composed;
  bool fits = false;     // the kernels of cuda/ support the options
  bool library = false;  // LibTorch's attention with kernels around it supports them
  bool distance = false;
  bool drops = false;           // has dropout of weights, in training
  bool fits_in_float32 = true;  // if `fits`: also in float32 and tf32
};
template <class Options>
KernelUse kernel_use(const Options& options, const MixerShape& shape) {
  const bool has_kernels = std::ranges::count(options.backends(), Backend::fused) > 0;
  KernelUse use{.backend = options.backend, .fits = has_kernels && !fused_problem(shape), .drops = shape.dropout > 0};
  if constexpr (requires { options.score; }) use.distance = options.score == MetricScore::distance;
  use.fits_in_float32 = options.values == MixerValues::shared || fused_values_fit(torch::kFloat, shape.head_width());
  use.library = has_kernels && !use.distance && options.values != MixerValues::unnormalised && !fused_problem(shape);
  return use;
}

// The rule: the kernels win if a composed product would keep the matrix of scores, dropped weights or masks, in
// float32, and in short contexts: those of the short backward pass, too.
bool kernels_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented);

// The rule of the kernels' short backward pass (ops/fused_metric.h). It is not yet measured, so the rule never takes
// it.
bool short_backward_expected_to_win(torch::ScalarType type, std::int64_t context);

// Whether the kernels compute this pass; they cannot if a probe observes the scores or a window limits them. With the
// backend fused, other obstacles are errors of the kernels. With auto such a pass is composed, and so is one with few
// queries, such as a step of generation: the kernels compute tiles of 16.
bool takes_kernels(const KernelUse& use, const MetricVectors& vectors, const Visibility& visibility, const Pass& pass);

// Whether the kernels compute scaled dot product attention in this pass: if weights are dropped, which LibTorch's
// attention cannot do by the random numbers of a pass, or with segments, for which that needs a mask of every pair.
bool take_scaled_dot_product(const MetricVectors& vectors, const Visibility& visibility, bool drops);

// The rule of LibTorch's attention with kernels around it: it computes 16-bit types, and drops no weights.
bool library_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented);

// Whether LibTorch's attention with kernels around it computes this pass: self-attention without state, window or
// probed scores.
bool takes_library(const KernelUse& use, const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                   const Visibility& visibility, const MixerState* state, const Pass& pass);

// A line for the log of a run on a GPU; empty if there is nothing to choose. `segmented`: batches have padding.
// `has_kernels`: this build has those of cuda/.
std::string describe_kernel_choice(const TransformerConfig& config, Precision precision, bool segmented,
                                   bool has_kernels);

}  // namespace metaformer
