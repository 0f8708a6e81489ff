#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_columns_fp32(const MetricBackward& backward, void* stream) { launch_columns<Fp32>(backward, stream); }

}  // namespace metaformer::cuda
