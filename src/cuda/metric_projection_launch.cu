#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>

#include "base/error.h"
#include "cuda/metric_launch.h"
#include "cuda/metric_projection_kernels.h"

namespace metaformer::cuda {

namespace {

void require(bool condition, const char* what) {
  if (!condition) throw Error(ExitCode::failure, std::string("metric projection kernel: ") + what);
}

std::int64_t most_parts(const MetricInputs& in) {
  return std::max<std::int64_t>(1, in.batch * tile_count(in.queries.tokens, projection_tile_rows));
}

bool is_aligned(const MetricRows& rows) {
  const auto& [batch, head, token] = rows.strides;
  return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && batch % 8 == 0 && head % 8 == 0 && token % 8 == 0;
}

void require_possible(const MetricProjection& projection, std::initializer_list<MetricRows> rows) {
  const auto& in = projection.in;
  require(in.element == MetricElement::bf16 || in.element == MetricElement::fp16, "the type is neither bf16 nor fp16");
  require(in.width % 8 == 0 && in.width >= 8 && in.width <= 128, "the head width is not a multiple of 8 up to 128");
  require((in.metric == nullptr) == (in.form == MetricForm::identity),
          "a metric goes with every form but the identity");
  require(!projection.normalised || projection.epsilon > 0, "a norm needs an epsilon above 0");
  require(is_aligned({const_cast<void*>(in.queries.p), in.queries.p_strides}) &&
              std::all_of(rows.begin(), rows.end(), is_aligned),
          "rows are not aligned to 16 bytes");
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();  // blocks of a grid
  const auto tiles = tile_count(in.queries.tokens, projection_tile_rows);
  require(in.batch <= most / in.heads && in.batch * in.heads <= most / tiles,
          "batch x heads x tokens is more than a grid holds");
}

template <class Format>
void start_forward(const MetricProjection& projection, gpu::Stream stream) {
  const auto& in = projection.in;
  with_width(in, [&]<int Width> {
    using Shape = ProjectShape<Format, Width>;
    gpu::launch(metric_project_kernel<Format, Width>, block_count(in, in.queries, Shape::rows), Shape::threads,
                Shape::shared_bytes, stream, projection);
  });
}

template <class Format>
void start_backward(const MetricProjectionBackward& backward, gpu::Stream stream) {
  const auto& in = backward.forward.in;
  with_width(in, [&]<int Width> {
    using Shape = ProjectionGradientShape<Format, Width>;
    gpu::launch(metric_project_gradient_kernel<Format, Width>, in.heads * backward.parts, Shape::threads,
                Shape::shared_bytes, stream, backward);
  });
  constexpr int threads = 128;
  if (const auto sums = in.heads * sum_rows(backward) * in.width; sums > 0)
    gpu::launch(metric_project_sum_kernel<threads>, (sums + threads - 1) / threads, threads, 0, stream, backward);
}

}  // namespace

// Enough blocks for several on every multiprocessor, and few enough sums of each.
std::int64_t metric_projection_parts(const MetricInputs& in) {
  constexpr std::int64_t blocks = 512;
  return std::clamp<std::int64_t>(blocks / std::max<std::int64_t>(in.heads, 1), 1, most_parts(in));
}

void metric_project(const MetricProjection& projection, void* stream) {
  if (is_empty(projection.in)) return;
  require_possible(projection, {projection.p, projection.q});
  require(!projection.normalised || projection.p.data != nullptr, "there is no room for the normalised p");
  require(projection.in.form == MetricForm::identity || projection.q.data != nullptr, "there is no room for q");
  const auto start = projection.in.element == MetricElement::bf16 ? start_forward<Bf16> : start_forward<Fp16>;
  start(projection, static_cast<gpu::Stream>(stream));
}

void metric_project_backward(const MetricProjectionBackward& backward, void* stream) {
  if (is_empty(backward.forward.in)) return;
  require_possible(backward.forward, {backward.dq, backward.dk, backward.dv, backward.dx, backward.dvalue});
  require(backward.parts > 0 && backward.parts <= most_parts(backward.forward.in), "there are more parts than tiles");
  require(backward.partial != nullptr || sum_rows(backward) == 0, "there is no room for partial sums");
  const auto start = backward.forward.in.element == MetricElement::bf16 ? start_backward<Bf16> : start_backward<Fp16>;
  start(backward, static_cast<gpu::Stream>(stream));
}

}  // namespace metaformer::cuda
