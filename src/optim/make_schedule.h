#pragma once
// The schedule that a config asks for.

#include <memory>

#include "config/train_config.h"
#include "optim/schedule.h"

namespace metaformer {

// Linear warm-up to the peak (Goyal et al. 2017), then constant, or a cosine (Loshchilov and Hutter 2017) or a straight
// line down to train.schedule.floor at the last step. As nanoGPT's get_lr.
std::unique_ptr<const Schedule> make_schedule(const TrainConfig& config);

}  // namespace metaformer
