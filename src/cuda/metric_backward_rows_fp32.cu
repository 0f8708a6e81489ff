#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_rows_fp32(const MetricBackward& backward, void* stream) { launch_rows<Fp32>(backward, stream); }

}  // namespace metaformer::cuda
