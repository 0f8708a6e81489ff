#pragma once
// Which backend computes metric and quadratic attention where model.mixer.backend is auto. On a GPU: the kernels of
// cuda/ where they are right and expected to be faster; else in bfloat16 and float16 the library's attention with two
// kernels around it (ops/library_metric.h), where it can; else composed products. The rule between the first and the
// last was measured on an H200 (docs/metric_attention.md).

#include <torch/types.h>

#include <algorithm>
#include <string>

#include "attention/mixer.h"
#include "config/model_config.h"
#include "config/train_config.h"
#include "ops/fused_metric.h"
#include "ops/pass.h"

namespace metaformer {

// The kernels' use as a mixer's options and shape decide it.
struct KernelUse {
  Backend backend = Backend::composed;
  bool fits = false;     // the kernels have what the options ask for
  bool library = false;  // so has the library's attention with the kernels around it
  bool distance = false;
  bool drops = false;           // weights, in training
  bool fits_in_float32 = true;  // so do float32 and tf32, where the kernels fit
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

// The rule: where a composed product keeps the matrix of scores, of dropped weights or of masks, in float32, or in
// short contexts.
bool kernels_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented);

// Whether the kernels compute this pass, which they cannot where a probe observes the scores. With the backend fused
// what else they cannot do is an error of theirs. With auto it is composed, and so is a pass of few queries, such as a
// step of generation: the kernels compute tiles of 16.
bool takes_kernels(const KernelUse& use, const MetricVectors& vectors, const Visibility& visibility, const Pass& pass);

// Whether they compute scaled dot product attention of queries, keys and values in this pass: with the library's
// attention weights cannot be dropped by the numbers of a pass, and segments need a mask of every pair.
bool take_scaled_dot_product(const MetricVectors& vectors, const Visibility& visibility, bool drops);

// The rule of the library's attention with kernels around it: it computes 16-bit types, and drops no weights.
bool library_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented);

// Whether that computes this pass, of tokens that see their own sequence by row order.
bool takes_library(const KernelUse& use, const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                   const Visibility& visibility, const MixerState* state, const Pass& pass);

// For the log of a training on a GPU; empty where there is nothing to choose. `segmented`: batches have padding.
// `has_kernels`: this build has those of cuda/.
std::string describe_kernel_choice(const TransformerConfig& config, Precision precision, bool segmented,
                                   bool has_kernels);

}  // namespace metaformer
