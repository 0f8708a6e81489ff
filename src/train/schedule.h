#pragma once
// The course of the learning rate.

#include "config/train_config.h"

namespace metaformer {

// The learning rate of step 0, 1, ...: linear warm-up to the peak (Goyal et al. 2017), then constant, or a cosine
// (Loshchilov and Hutter 2017) or a straight line down to min_learning_rate at the last step. As nanoGPT's get_lr.
double learning_rate_at(const TrainConfig& config, std::int64_t step);

}  // namespace metaformer
