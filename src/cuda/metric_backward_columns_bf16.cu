#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_columns_bf16(const MetricBackward& backward, void* stream) { launch_columns<Bf16>(backward, stream); }

}  // namespace metaformer::cuda
