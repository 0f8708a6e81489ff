#pragma once
// The learning rate: its schedule over the steps, and its factor for each parameter.

#include <cstdint>

#include "config/train_config.h"
#include "model/parameters.h"

namespace metaformer {

// The learning rate of step s = 0 ... n - 1, for n = train.steps steps with w steps of warm-up:
//   s < w          peak x (s + 1) / (w + 1): a straight line to the peak, train.learning_rate, at s = w (Goyal et al.
//                  2017)
//   constant       the peak
//   cosine, linear floor + (peak - floor) x h(p), p = (s - w) / (n - w), h(p) = (1 + cos(pi p)) / 2 or 1 - p: the
//                  floor would be the rate of the step after the last (Loshchilov and Hutter 2017; as nanoGPT's
//                  get_lr)
//   trapezoid      the same straight line with p = max(0, s - f) / (n - 1 - f), f = max(w, n - 1 - decay_steps): the
//                  last step has the floor (Zhai et al. 2022; Hägele et al. 2024)
//   inverse_sqrt   peak x sqrt(w / s)
// and noam, whose steps count from 1 and which includes its warm-up: train.learning_rate / sqrt(width) x
// min(1 / sqrt(s + 1), (s + 1) / w^1.5) (Vaswani et al. 2017). `width`: model.width. docs/configs.md has this table.
double scheduled_rate(const TrainConfig& config, std::int64_t width, std::int64_t step);

// Sets the factor of every parameter's learning rate (Howard and Ruder 2018, "discriminative fine-tuning"): 0 if
// train.freeze names it; else train.layer_rate_decay to the power of its distance from the head (0 for the head and the
// norms before it, 1 for the last block, one more for each block before it and for embeddings and positions), times the
// factor that train.rate_factors has for it. Errors (exit code 2): a name that no parameter has, two factors for one
// parameter, or all parameters frozen.
void set_layer_rates(ParameterBuffer& parameters, const TrainConfig& config);

}  // namespace metaformer
