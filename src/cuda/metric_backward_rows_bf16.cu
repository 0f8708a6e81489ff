#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_rows_bf16(const MetricBackward& backward, void* stream) { launch_rows<Bf16>(backward, stream); }

}  // namespace metaformer::cuda
