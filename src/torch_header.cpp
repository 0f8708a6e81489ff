// Compiles the precompiled torch header that every other torch target reuses.
#include <torch/types.h>
