#pragma once
// The schedule that a config asks for.

#include <memory>

#include "config/train_config.h"
#include "optim/schedule.h"

namespace metaformer {

// With warm-up steps w, and steps s from 0:
//   s < w          a straight line to the peak, train.learning_rate, at s = w (Goyal et al. 2017)
//   constant       the peak
//   cosine, linear down to the floor at the last step (Loshchilov and Hutter 2017); as nanoGPT's get_lr
//   trapezoid      the peak, then linear over the last decay_steps (Zhai et al. 2022; Hägele et al. 2024)
//   inverse_sqrt   peak x sqrt(w / s)
// and noam: train.learning_rate / sqrt(width) x min(1 / sqrt(s + 1), (s + 1) / w^1.5) (Vaswani et al. 2017).
// `width`: model.width.
std::unique_ptr<const Schedule> make_schedule(const TrainConfig& config, std::int64_t width);

}  // namespace metaformer
