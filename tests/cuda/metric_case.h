#pragma once
// One problem for the metric kernels: inputs in guarded memory, the kernels' results, and the references.

#include <cstdint>
#include <optional>
#include <string>

#include "cuda/metric_attention.h"
#include "cuda/metric_reference.h"

namespace metaformer {

enum class Mask { none, padding, blocks, nothing };  // nothing: every token is padding
enum class Layout { contiguous, interleaved, unaligned };

struct MetricCase {
  cuda::MetricElement element = cuda::MetricElement::bf16;
  std::optional<cuda::MetricElement> given = {};  // type to which inputs are rounded; default: `element`
  cuda::MetricForm form = cuda::MetricForm::dense;
  bool distance = false;
  bool symmetric = true;
  bool causal = true;
  Mask mask = Mask::none;
  Layout layout = Layout::interleaved;
  int batch = 2, heads = 2, tokens = 64, width = 32;
  // The number of separate keys; 0: the queries are the keys. With a causal mask the last keys are the queries, as in a
  // cache.
  int keys = 0;
  bool values = false;        // own values
  double spread = 1;          // standard deviation of p
  bool equal_tokens = false;  // all tokens of a head are equal
  double dropout = 0;
  int short_parts = 0;  // of the metric's gradient, in the backward pass of short contexts; 0: the usual backward pass
  std::uint64_t seed = 1;
  std::string str() const;
  int key_count() const { return keys > 0 ? keys : tokens; }
};

// The kernels' results, from inputs that end at a page without access. `with_nan`: an index into p that becomes NaN, or
// -1.
MetricResult run_kernels(const MetricCase& problem, std::int64_t with_nan = -1);

// The definition in double, and the same formulas run eagerly in the case's type.
MetricResult solve_exactly(const MetricCase& problem);
MetricResult solve_eagerly(const MetricCase& problem);

// Euclidean norm, without infinite entries, and distance, with 0 for two entries of the same infinity.
double norm(const Values& a);
double distance(const Values& a, const Values& b);

// A quarter of the distance between 1 and the next number of the type.
double unit_roundoff(cuda::MetricElement element);

}  // namespace metaformer
