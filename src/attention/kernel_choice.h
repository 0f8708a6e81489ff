#pragma once
// Which backend computes metric and quadratic attention where model.mixer.backend is auto: on a GPU the kernels of
// cuda/ where they are right and expected to be faster, else composed products. Expected by counting operations and
// memory; nothing of it has been measured on a GPU (docs/metric_attention.md).

#include <torch/torch.h>

#include <string>

#include "attention/metric_options.h"
#include "attention/mixer_state.h"
#include "attention/quadratic_options.h"
#include "attention/visibility.h"
#include "config/model_config.h"
#include "config/train_config.h"
#include "ops/pass.h"

namespace metaformer {

// What a mixer's options and shape decide.
struct KernelUse {
  Backend backend = Backend::composed;
  bool fits = false;  // the kernels have what the options ask for
  bool distance = false;
  bool drops = false;  // weights, in training
};
KernelUse kernel_use(const MetricOptions& options, const MixerShape& shape);
KernelUse kernel_use(const QuadraticOptions& options, const MixerShape& shape);

// Where a composed product keeps the matrix of scores or of masks, is exact in float32, or is short.
bool kernels_expected_to_win(const KernelUse& use, torch::ScalarType type, std::int64_t context, bool segmented);

// Whether the kernels compute this pass: tokens look at themselves, all at once, and no probe observes the scores. With
// the backend fused what they cannot do otherwise is an error of theirs, with auto it is composed.
bool takes_kernels(const KernelUse& use, const torch::Tensor& p_bnck, bool to_themselves, const MixerState* state,
                   const Visibility& visibility, const Pass& pass);

// For the log of a training on a GPU; empty where there is nothing to choose. `segmented`: batches have padding.
std::string describe_kernel_choice(const TransformerConfig& config, Precision precision, bool segmented);

}  // namespace metaformer
