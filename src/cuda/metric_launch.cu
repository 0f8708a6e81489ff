#include <algorithm>
#include <limits>
#include <string>

#include "base/error.h"
#include "cuda/metric_launch.h"

namespace metaformer::cuda {

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw Error(ExitCode::failure, "metric attention kernel: " + what);
}

void require_possible(const MetricInputs& in) {
  require(in.width % 8 == 0 && in.width >= 8 && in.width <= 128,
          "head width " + std::to_string(in.width) + " is not a multiple of 8 up to 128");
  require(in.scale > 0, "the scale is not above 0");
  require((in.metric == nullptr) == (in.form == MetricForm::identity),
          "a metric goes with every form but the identity");
  require(in.values == nullptr || has_kernels_for_values(in.element, in.width),
          "head width " + std::to_string(in.width) + " is above 96 with values of their own in 32 bits");
  // The smallest tiles have 64 rows; blocks are counted in 31 bits.
  constexpr std::int64_t rows = 64, most = std::numeric_limits<std::int32_t>::max();
  const auto tiles = (std::max(in.queries.tokens, in.keys.tokens) + rows - 1) / rows;
  require(in.keys.tokens > 0, "there are no keys");
  require(in.batch <= most / in.heads && in.batch * in.heads <= most / tiles,
          "batch x heads x tokens is more than a grid holds");
}

}  // namespace

MetricDevice metric_kernel_device() { return gpu::is_emulated ? MetricDevice::host : MetricDevice::cuda; }

std::int64_t metric_gradient_parts(const MetricInputs& in) {
  constexpr std::int64_t most = 64;
  const auto tiles = tile_count(in.queries.tokens, gradient_tile_rows);
  return std::clamp<std::int64_t>(in.batch * tiles, 1, most);
}

std::int64_t metric_turns(const MetricInputs& in) {
  return 1 + in.batch * in.heads * tile_count(in.queries.tokens, turn_rows) * turn_warps;
}

std::int64_t metric_dq_sums(const MetricInputs& in) {
  const auto groups = tile_count(in.queries.tokens, dq_sum_rows);
  return in.batch * in.heads * groups * dq_sum_rows * compiled_width(in.width, in.values != nullptr);
}

void metric_forward(const MetricForward& forward, void* stream) {
  if (is_empty(forward.in)) return;
  require_possible(forward.in);
  require(!forward.in.distance || forward.half_bias != nullptr, "a distance needs room for its biases");
  switch (forward.in.element) {
    case MetricElement::bf16:
      return forward_bf16(forward, stream);
    case MetricElement::fp16:
      return forward_fp16(forward, stream);
    case MetricElement::tf32:
      return forward_tf32(forward, stream);
    case MetricElement::fp32:
      return forward_fp32(forward, stream);
  }
}

void metric_backward(const MetricBackward& backward, void* stream) {
  if (is_empty(backward.in)) return;
  require_possible(backward.in);
  switch (backward.in.element) {
    case MetricElement::bf16:
      return backward_bf16(backward, stream);
    case MetricElement::fp16:
      return backward_fp16(backward, stream);
    case MetricElement::tf32:
      return backward_tf32(backward, stream);
    case MetricElement::fp32:
      return backward_fp32(backward, stream);
  }
}

}  // namespace metaformer::cuda
