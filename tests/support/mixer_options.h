#pragma once
// The options of every mixer, for tests that name them. No torch.

#include "attention/average_pooling.h"
#include "attention/controls.h"
#include "attention/lsh_options.h"
#include "attention/metric_options.h"
#include "attention/quadratic_options.h"
#include "attention/scaled_dot_product_options.h"
#include "config/mixer_config.h"
