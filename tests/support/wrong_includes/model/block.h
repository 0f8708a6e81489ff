#include <torch/torch.h>

#include "attention/metric.h"
#include "base/error.h"
#include "config/schema.h"
