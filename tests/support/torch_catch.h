#pragma once
// torch and Catch2 together. torch defines a CHECK of its own; without the #undef tests would assert nothing.
#include <torch/types.h>
#undef CHECK
#include "support/catch.h"
