#include "model/block.h"
