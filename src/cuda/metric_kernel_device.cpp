// Apart from the rest, so that tests can link the emulated kernels' answer instead.
#include "cuda/metric_attention.h"

namespace metaformer::cuda {

MetricDevice metric_kernel_device() { return MetricDevice::cuda; }

}  // namespace metaformer::cuda
