#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void forward_fp32(const MetricForward& forward, void* stream) { launch_forward<Fp32>(forward, stream); }

}  // namespace metaformer::cuda
