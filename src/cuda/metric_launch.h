#pragma once
// Starts the kernels for an element and a head's width.

#include "cuda/metric_backward_pass.h"
#include "cuda/metric_forward_kernel.h"

namespace metaformer::cuda {

// Those of every element are compiled in a file of its own: they take long.
void forward_bf16(const MetricForward& forward, void* stream);
void forward_fp16(const MetricForward& forward, void* stream);
void forward_tf32(const MetricForward& forward, void* stream);
void forward_fp32(const MetricForward& forward, void* stream);

void backward_bf16(const MetricBackward& backward, void* stream);
void backward_fp16(const MetricBackward& backward, void* stream);
void backward_tf32(const MetricBackward& backward, void* stream);
void backward_fp32(const MetricBackward& backward, void* stream);

// Calls start.template operator()<Width>() for the compiled width.
template <class Start>
void with_width(const MetricInputs& in, Start start) {
  switch (compiled_width(in.width, in.values != nullptr)) {
    case 16:
      return start.template operator()<16>();
    case 32:
      return start.template operator()<32>();
    case 48:
      return start.template operator()<48>();
    case 64:
      return start.template operator()<64>();
    case 96:
      return start.template operator()<96>();
    default:
      return start.template operator()<128>();
  }
}

inline bool is_empty(const MetricInputs& in) { return in.batch == 0 || in.heads == 0 || in.queries.tokens == 0; }

// Blocks of a kernel that owns `rows` tokens of a side per block.
inline std::int64_t block_count(const MetricInputs& in, const MetricSide& side, int rows) {
  return in.batch * in.heads * tile_count(side.tokens, rows);
}

// Calls start.template operator()<Width, HasValues>() for the compiled width.
template <class Format, class Start>
void with_kernels_of(const MetricInputs& in, Start start) {
  with_width(in, [&]<int Width> {
    constexpr bool narrow = sizeof(typename Format::Element) == 2;
    if constexpr (Width % 32 == 0 && (narrow || Width <= most_value_width_of_32_bits)) {
      if (in.values != nullptr) return start.template operator()<Width, true>();
    }
    start.template operator()<Width, false>();
  });
}

template <class Format>
void launch_forward(const MetricForward& forward, void* stream_pointer) {
  const auto stream = static_cast<gpu::Stream>(stream_pointer);
  const auto& in = forward.in;
  with_kernels_of<Format>(in, [&]<int Width, bool HasValues> {
    using Bias = BiasShape<Format, Width>;
    using Forward = ForwardShape<Format, Width, HasValues>;
    if (in.distance)
      gpu::launch(metric_bias_kernel<Format, Width>, block_count(in, in.keys, Bias::rows), Bias::threads,
                  Bias::shared_bytes, stream, forward);
    gpu::launch(metric_forward_kernel<Format, Width, HasValues>, block_count(in, in.queries, Forward::rows),
                Forward::threads, Forward::shared_bytes, stream, forward);
  });
}

// dp of both sides, dv, and the gradient of the metric where there is one.
template <class Format>
void launch_backward(const MetricBackward& backward, void* stream_pointer) {
  const auto stream = static_cast<gpu::Stream>(stream_pointer);
  const auto& in = backward.in;
  gpu::launch(metric_delta_kernel<Format>, block_count(in, in.queries, PerTokenShape::rows), PerTokenShape::threads, 0,
              stream, backward);
  with_kernels_of<Format>(in, [&]<int Width, bool HasValues> {
    using Pass = PassShape<Format, Width, HasValues>;
    gpu::launch(metric_pass_kernel<Format, Width, HasValues>, block_count(in, in.keys, Pass::rows), Pass::threads,
                Pass::shared_bytes, stream, backward);
  });
  with_width(in, [&]<int Width> {
    using Finish = FinishShape<Format, Width>;
    gpu::launch(metric_finish_kernel<Format, Width>, block_count(in, in.queries, Finish::rows), Finish::threads,
                Finish::shared_bytes, stream, backward);
    if (in.distance && !in.to_themselves)
      gpu::launch(metric_keys_kernel<Format>, block_count(in, in.keys, PerTokenShape::rows), PerTokenShape::threads, 0,
                  stream, backward);
    if (backward.dmetric == nullptr) return;
    using Gradient = GradientShape<Format, Width>;
    const auto parts = metric_gradient_parts(in);
    gpu::launch(metric_gradient_kernel<Format, Width>, in.heads * parts, Gradient::threads, Gradient::shared_bytes,
                stream, backward, parts);
    constexpr int threads = 128;
    gpu::launch(metric_sum_kernel<threads>, (in.heads * in.width * in.width + threads - 1) / threads, threads, 0,
                stream, backward, parts);
  });
}

}  // namespace metaformer::cuda
