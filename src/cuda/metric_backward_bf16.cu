#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_bf16(const MetricBackward& backward, void* stream) { launch_backward<Bf16>(backward, stream); }

}  // namespace metaformer::cuda
