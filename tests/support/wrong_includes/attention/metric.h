#include "attention/mixer.h"
#include "base/error.h"
#include "config/schema.h"
