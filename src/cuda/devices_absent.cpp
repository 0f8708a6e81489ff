// Compiled where CUDA is not. Apart from the kernels, which tests replace by emulated ones.
#include "cuda/devices.h"

namespace metaformer::cuda {

Devices find_devices() { return {.compiled = false, .problem = "this executable was built without CUDA", .list = {}}; }

}  // namespace metaformer::cuda
