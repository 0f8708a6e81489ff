#include "data/sources/lines.h"
