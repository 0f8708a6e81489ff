// In a file of its own: tests put the emulated kernels in its place.
#include "cuda/metric_attention.h"

namespace metaformer::cuda {

MetricDevice metric_kernel_device() { return MetricDevice::cuda; }

}  // namespace metaformer::cuda
