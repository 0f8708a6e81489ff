// The kernels, compiled where CUDA is not.
#include "base/error.h"
#include "cuda/activation.h"
#include "cuda/adam.h"
#include "cuda/cross_entropy.h"
#include "cuda/dropout.h"
#include "cuda/embedding.h"
#include "cuda/gradient_norm.h"
#include "cuda/metric_attention.h"
#include "cuda/metric_projection.h"
#include "cuda/residual_norm.h"
#include "cuda/rotary.h"

namespace metaformer::cuda {

void dropout(const Dropout&, void*) {
  throw Error(ExitCode::failure, "dropout kernel: this executable was built without CUDA");
}

std::int64_t activation_partial_sums(std::int64_t, std::int64_t) { return 0; }

void activation(const Activation&, void*) {
  throw Error(ExitCode::failure, "activation kernel: this executable was built without CUDA");
}

void activation_backward(const ActivationBackward&, void*) {
  throw Error(ExitCode::failure, "activation kernel: this executable was built without CUDA");
}

void rotary(const Rotary&, void*) {
  throw Error(ExitCode::failure, "kernel of rotary positions: this executable was built without CUDA");
}

std::int64_t embedding_gradient_numbers(std::int64_t) { return 0; }

std::int64_t embedding_gradient_sums(std::int64_t, int) { return 0; }

void embedding_gradient(const EmbeddingGradient&, void*) {
  throw Error(ExitCode::failure, "kernel of the gradient of embeddings: this executable was built without CUDA");
}

std::int64_t residual_norm_partial_sums(std::int64_t, int) { return 1; }

void residual_norm(const ResidualNorm&, void*) {
  throw Error(ExitCode::failure, "kernel of residual sum and norm: this executable was built without CUDA");
}

void residual_norm_backward(const ResidualNormBackward&, void*) {
  throw Error(ExitCode::failure, "kernel of residual sum and norm: this executable was built without CUDA");
}

std::int64_t cross_entropy_parts(std::int64_t, std::int64_t) { return 0; }

void cross_entropy(const CrossEntropy&, void*) {
  throw Error(ExitCode::failure, "cross-entropy kernel: this executable was built without CUDA");
}

std::int64_t gradient_norm_parts(std::int64_t) { return 0; }

void gradient_norm(const GradientNorm&, void*) {
  throw Error(ExitCode::failure, "kernel of the gradients' norm: this executable was built without CUDA");
}

void adam_step(const AdamStep&, const AdamRange*, std::int64_t, void*) {
  throw Error(ExitCode::failure, "Adam kernel: this executable was built without CUDA");
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

int metric_short_bytes(const MetricInputs&) { return 0; }

bool has_short_backward(const MetricInputs&) { return false; }

std::int64_t metric_short_parts(const MetricInputs&) { return 1; }

void metric_short_backward(const MetricBackward&, std::int64_t, void*) {
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
