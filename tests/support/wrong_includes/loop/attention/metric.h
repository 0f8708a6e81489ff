#include "attention/mixer.h"
