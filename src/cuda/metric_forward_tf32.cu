#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void forward_tf32(const MetricForward& forward, void* stream) { launch_forward<Tf32>(forward, stream); }

}  // namespace metaformer::cuda
