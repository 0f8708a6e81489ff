#include "cuda/metric_attention.h"

namespace metaformer::cuda {

MetricDevice metric_kernel_device() { return MetricDevice::host; }

}  // namespace metaformer::cuda
