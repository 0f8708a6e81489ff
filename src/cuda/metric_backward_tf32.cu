#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_tf32(const MetricBackward& backward, void* stream) { launch_backward<Tf32>(backward, stream); }

}  // namespace metaformer::cuda
