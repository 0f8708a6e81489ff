#include "cuda/metric_launch.h"

namespace metaformer::cuda {

void forward_fp32(const MetricForward& forward, void* stream) { launch_forward<Fp32>(forward, stream); }
void backward_fp32(const MetricBackward& backward, void* stream) { launch_backward<Fp32>(backward, stream); }

}  // namespace metaformer::cuda
