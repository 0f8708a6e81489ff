#include "cuda/metric_launch.h"

namespace metaformer::cuda {

void forward_bf16(const MetricForward& forward, void* stream) { launch_forward<Bf16>(forward, stream); }
void backward_bf16(const MetricBackward& backward, void* stream) { launch_backward<Bf16>(backward, stream); }

}  // namespace metaformer::cuda
