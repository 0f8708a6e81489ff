#include "base/error.h"
#include "cuda/devices.h"
#include "cuda/dropout.h"
#include "cuda/metric_attention.h"

// Compiled where CUDA is not.

namespace metaformer::cuda {

Devices find_devices() { return {.compiled = false, .problem = "this executable was built without CUDA", .list = {}}; }

}  // namespace metaformer::cuda

// Compiled where CUDA is not.

namespace metaformer::cuda {

void dropout(const Dropout&, void*) {
  throw Error(ExitCode::failure, "dropout kernel: this executable was built without CUDA");
}

}  // namespace metaformer::cuda

// Compiled where CUDA is not.

namespace metaformer::cuda {

MetricDevice metric_kernel_device() { return MetricDevice::none; }

std::int64_t metric_gradient_parts(const MetricInputs&) { return 1; }

std::int64_t metric_dq_sums(const MetricInputs&) { return 1; }

std::int64_t metric_turns(const MetricInputs&) { return 1; }

void metric_forward(const MetricForward&, void*) {
  throw Error(ExitCode::failure, "metric attention kernel: this executable was built without CUDA");
}

void metric_backward(const MetricBackward&, void*) {
  throw Error(ExitCode::failure, "metric attention kernel: this executable was built without CUDA");
}

}  // namespace metaformer::cuda
