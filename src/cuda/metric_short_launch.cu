#include <algorithm>
#include <string>

#include "base/error.h"
#include "cuda/metric_launch.h"
#include "cuda/metric_short_backward.h"

namespace metaformer::cuda {

namespace {

constexpr int most_short_width = 64;

// Calls start.template operator()<Width, HasValues, Warps>() for the smallest kernel that holds the tokens.
template <class Start>
auto with_short_kernel(const MetricInputs& in, Start start) {
  const auto with_warps = [&]<int Width, bool HasValues> {
    if (in.queries.tokens <= 64) return start.template operator()<Width, HasValues, 2>();
    if (in.queries.tokens <= 128) return start.template operator()<Width, HasValues, 4>();
    return start.template operator()<Width, HasValues, 8>();
  };
  if (in.values != nullptr)
    return in.width <= 32 ? with_warps.template operator()<32, true>() : with_warps.template operator()<64, true>();
  return in.width <= 32 ? with_warps.template operator()<32, false>() : with_warps.template operator()<64, false>();
}

template <class Format>
void start_backward(const MetricBackward& backward, std::int64_t parts, gpu::Stream stream) {
  with_short_kernel(backward.in, [&]<int Width, bool HasValues, int Warps> {
    using Shape = ShortShape<Format, Width, HasValues, Warps>;
    gpu::launch(metric_short_backward_kernel<Format, Width, HasValues, Warps>, backward.in.heads * parts,
                Shape::threads, Shape::shared_bytes, stream, backward, parts);
  });
}

}  // namespace

int metric_short_bytes(const MetricInputs& in) {
  const bool narrow = in.element == MetricElement::bf16 || in.element == MetricElement::fp16;
  if (!narrow || in.distance || !in.to_themselves || in.queries.tokens > most_short_context ||
      in.width > most_short_width || in.width % 8 != 0)
    return 0;
  return with_short_kernel(in, [&]<int Width, bool HasValues, int Warps> {
    return ShortShape<Bf16, Width, HasValues, Warps>::shared_bytes;
  });
}

bool has_short_backward(const MetricInputs& in) {
  const int bytes = metric_short_bytes(in);
  return bytes > 0 && bytes <= gpu::most_shared_memory();
}

// Enough blocks for several on every multiprocessor, and few enough sums of each.
std::int64_t metric_short_parts(const MetricInputs& in) {
  constexpr std::int64_t blocks = 1024;
  return std::clamp<std::int64_t>(blocks / std::max<std::int64_t>(in.heads, 1), 1, std::max<std::int64_t>(in.batch, 1));
}

void metric_short_backward(const MetricBackward& backward, std::int64_t parts, void* stream_pointer) {
  const auto& in = backward.in;
  if (is_empty(in)) return;
  const auto stream = static_cast<gpu::Stream>(stream_pointer);
  if (!has_short_backward(in) || parts < 1 || parts > in.batch)
    throw Error(ExitCode::failure, "metric attention kernel: no short backward pass of " +
                                       std::to_string(in.queries.tokens) + " tokens and head width " +
                                       std::to_string(in.width) + " in " + std::to_string(parts) + " parts");
  const auto start = in.element == MetricElement::bf16 ? start_backward<Bf16> : start_backward<Fp16>;
  start(backward, parts, stream);
  if (backward.dmetric == nullptr) return;
  constexpr int threads = 128;
  gpu::launch(metric_sum_kernel<threads>, (in.heads * in.width * in.width + threads - 1) / threads, threads, 0, stream,
              backward, parts);
}

}  // namespace metaformer::cuda
