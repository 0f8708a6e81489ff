#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_fp16(const MetricBackward& backward, void* stream) { launch_backward<Fp16>(backward, stream); }

}  // namespace metaformer::cuda
