#include "cuda/metric_launchers.h"

namespace metaformer::cuda {

void backward_rows_fp16(const MetricBackward& backward, void* stream) { launch_rows<Fp16>(backward, stream); }

}  // namespace metaformer::cuda
