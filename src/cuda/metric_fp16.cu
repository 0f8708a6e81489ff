#include "cuda/metric_launch.h"

namespace metaformer::cuda {

void forward_fp16(const MetricForward& forward, void* stream) { launch_forward<Fp16>(forward, stream); }
void backward_fp16(const MetricBackward& backward, void* stream) { launch_backward<Fp16>(backward, stream); }

}  // namespace metaformer::cuda
