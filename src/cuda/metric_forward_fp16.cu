#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void forward_fp16(const MetricForward& forward, void* stream) { launch_forward<Fp16>(forward, stream); }

}  // namespace metaformer::cuda
