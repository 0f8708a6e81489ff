#pragma once
// The options of every mixer, for tests that name them. No torch.

#include "config/mixer_config.h"
