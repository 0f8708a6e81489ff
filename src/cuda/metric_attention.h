#pragma once
// Metric attention on the GPU: pointers in, pointers out, no tensors. For every head, with p the projected tokens and M
// the metric (any k x k form W does; a distance needs a symmetric one):
//
//   score_ij = scale (p_i M p_j),  or for a distance  -scale (p_i - p_j) M (p_i - p_j)
//   t_i = sum_j m_ij softmax_j(score_ij) p_j  over the visible j; 0 where none is visible
//
// with m_ij = 0 or 1 / (1 - probability) where weights are dropped, else 1.
//
// Algorithm, memory and accuracy: docs/metric_attention.md.

#include <cstdint>

#include "cuda/metric_arguments.h"

namespace metaformer::cuda {

// Where the kernels of this executable run; on the host in tests, which emulate them.
enum class MetricDevice { none, cuda, host };
MetricDevice metric_kernel_device();

// How many partial metric gradients backward keeps, summed in a fixed order.
std::int64_t metric_gradient_parts(const MetricInputs& in);

// How many numbers of dq backward adds up, those of padded tokens and columns among them.
std::int64_t metric_dq_sums(const MetricInputs& in);

// How many counters backward's blocks take turns by.
std::int64_t metric_turns(const MetricInputs& in);

// Run on `stream` (a cudaStream_t) of the current device and return at once. Equal inputs give equal bits. Errors
// (exit code 1): sizes the kernels cannot do, or what CUDA says of a launch.
void metric_forward(const MetricForward& forward, void* stream);
void metric_backward(const MetricBackward& backward, void* stream);

}  // namespace metaformer::cuda
