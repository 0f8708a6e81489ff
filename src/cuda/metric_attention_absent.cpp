// The kernels, compiled where CUDA is not.
#include "base/error.h"
#include "cuda/dropout.h"
#include "cuda/metric_attention.h"
#include "cuda/metric_projection.h"

namespace metaformer::cuda {

void dropout(const Dropout&, void*) {
  throw Error(ExitCode::failure, "dropout kernel: this executable was built without CUDA");
}

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

std::int64_t metric_projection_parts(const MetricInputs&) { return 1; }

void metric_project(const MetricProjection&, void*) {
  throw Error(ExitCode::failure, "metric projection kernel: this executable was built without CUDA");
}

void metric_project_backward(const MetricProjectionBackward&, void*) {
  throw Error(ExitCode::failure, "metric projection kernel: this executable was built without CUDA");
}

}  // namespace metaformer::cuda
