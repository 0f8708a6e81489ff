#include <torch/torch.h>

#include "model/block.h"
