#pragma once
// One function per element and direction, each in a file of its own: they take long to compile.

#include "cuda/metric_arguments.h"

namespace metaformer::cuda {

constexpr int gradient_tile_rows = 32;  // tokens that one step of the metric gradient takes
constexpr int turn_rows = 16;           // queries of the smallest tile that blocks take turns at
constexpr int dq_sum_rows = 16;         // queries whose dq lies together in MetricBackward::dq_sum: those of a warp

// The width that the kernel for heads of `width` is compiled for.
constexpr int compiled_width(int width) { return width <= 64 ? (width + 15) / 16 * 16 : width <= 96 ? 96 : 128; }

void forward_bf16(const MetricForward& forward, void* stream);
void forward_fp16(const MetricForward& forward, void* stream);
void forward_tf32(const MetricForward& forward, void* stream);
void forward_fp32(const MetricForward& forward, void* stream);

void backward_bf16(const MetricBackward& backward, void* stream);
void backward_fp16(const MetricBackward& backward, void* stream);
void backward_tf32(const MetricBackward& backward, void* stream);
void backward_fp32(const MetricBackward& backward, void* stream);

}  // namespace metaformer::cuda
