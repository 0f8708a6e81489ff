#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void forward_bf16(const MetricForward& forward, void* stream) { launch_forward<Bf16>(forward, stream); }

}  // namespace metaformer::cuda
