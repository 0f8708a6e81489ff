#include "base/error.h"
#include "data/datasets/rows.h"
