#pragma once
// Autograd nodes with gradients of our own, and loops over rows for kernels on the CPU.

#include <ATen/Parallel.h>
#include <c10/util/FunctionRef.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>

#include "cuda/row_element.h"

// at::parallel_for is a template, compiled here: without OpenMP it would silently run on one thread.
#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for needs the compiler's OpenMP flag (link metaformer_torch)"
#endif

namespace metaformer {

using Tensors = torch::autograd::variable_list;

// The arguments of backward: the tensors that forward saved, and the gradient of each result.
struct Backward {
  Tensors saved, dy;
  const torch::autograd::Node& node;

  // Whether the gradient of an input is needed; false if there is no such input.
  bool needs(std::size_t input) const { return input < node.num_outputs() && node.task_should_compute_output(input); }
};
using BackwardFunction = std::function<Tensors(const Backward&)>;  // may capture other tensors, but no result

// The results of `forward`, computed without gradients, as one node of the graph that is named after the operation.
// `forward` may set `saved` to inputs, results and other tensors, which are kept for backward. `backward` returns the
// gradients of the `inputs`, some of which may be undefined. There are no second derivatives: with create_graph
// backward throws c10::Error, which names the operation.
Tensors own_nodes(const char* operation, const Tensors& inputs, c10::function_ref<Tensors(Tensors& saved)> forward,
                  BackwardFunction backward);

// The same for one result.
torch::Tensor own_node(const char* operation, const Tensors& inputs,
                       c10::function_ref<torch::Tensor(Tensors& saved)> forward, BackwardFunction backward);

// Whether the kernels of cpu/ can compute with x: on the CPU, float32 or bfloat16, and not empty.
inline bool fits_cpu_kernels(const torch::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == torch::kFloat || x.scalar_type() == torch::kBFloat16) && x.numel() > 0;
}

// Calls use(Element()) with the type that such kernels take: float, or std::uint16_t for the bits of bfloat16.
template <class Use>
void with_element(const torch::Tensor& x, const Use& use) {
  x.scalar_type() == torch::kFloat ? use(float()) : use(std::uint16_t());
}

// Whether the kernels of cuda/ can read and write the type, and their name for it.
inline bool is_row_type(torch::ScalarType type) {
  return type == torch::kFloat || type == torch::kBFloat16 || type == torch::kHalf;
}
inline cuda::RowElement row_element(torch::ScalarType type) {
  if (type == torch::kBFloat16) return cuda::RowElement::bf16;
  return type == torch::kHalf ? cuda::RowElement::fp16 : cuda::RowElement::fp32;
}

// For kernels that take null for what they do not need.
inline float* floats_of(const torch::Tensor& x) { return x.defined() ? x.data_ptr<float>() : nullptr; }

template <class Element>
Element* elements_of(const torch::Tensor& x) {
  return static_cast<Element*>(x.data_ptr());
}

// Calls work(begin, end) for parts of `rows` rows of `width` elements each, on LibTorch's threads.
template <class Work>
void for_rows(std::int64_t rows, std::int64_t width, const Work& work) {
  constexpr std::int64_t elements_worth_a_thread = 1 << 14;
  at::parallel_for(0, rows, std::max<std::int64_t>(1, elements_worth_a_thread / width), work);
}

}  // namespace metaformer
