#include "attention/metric.h"
