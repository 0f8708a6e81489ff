#include "cuda/metric_launch.h"

namespace metaformer::cuda {

void forward_tf32(const MetricForward& forward, void* stream) { launch_forward<Tf32>(forward, stream); }
void backward_tf32(const MetricBackward& backward, void* stream) { launch_backward<Tf32>(backward, stream); }

}  // namespace metaformer::cuda
