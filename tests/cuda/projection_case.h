#pragma once
// One problem for the kernels around the library's attention (cuda/metric_projection.h): inputs in guarded memory, the
// kernels' results, and those of the formulas.

#include "cuda/metric_case.h"
#include "cuda/metric_projection.h"

namespace metaformer {

struct ProjectionCase {
  cuda::MetricElement element = cuda::MetricElement::bf16;  // or fp16
  cuda::MetricForm form = cuda::MetricForm::dense;
  bool normalised = true, has_gain = true, own_values = true;
  Layout layout = Layout::interleaved;  // of the inputs and outputs of the library's attention
  int batch = 2, heads = 2, tokens = 64, width = 32;
  std::int64_t parts = 0;  // 0: as many as metric_projection_parts
  double spread = 1;       // standard deviation of x
  std::uint64_t seed = 1;
  std::string str() const;
};

// Results for every token and head, [b, n, c, k], except dM, [n, k, k], and dgain, [n, k].
struct ProjectionResult {
  Values p, q, dx, dvalue, dmetric, dgain;
  bool operator==(const ProjectionResult&) const = default;
};

ProjectionResult run_projection(const ProjectionCase& problem);

// By the definition in double, with the derivatives of the norm as a matrix; and like an eager program in the case's
// type, with every result rounded.
ProjectionResult project_exactly(const ProjectionCase& problem);
ProjectionResult project_eagerly(const ProjectionCase& problem);

}  // namespace metaformer
