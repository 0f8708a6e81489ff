#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_fp32(const MetricBackward& backward, void* stream) { launch_backward<Fp32>(backward, stream); }

}  // namespace metaformer::cuda
