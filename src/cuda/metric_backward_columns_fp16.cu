#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_columns_fp16(const MetricBackward& backward, void* stream) { launch_columns<Fp16>(backward, stream); }

}  // namespace metaformer::cuda
