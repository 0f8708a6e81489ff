#pragma once
// The metric M of metric attention under its parameterisations.

#include <cmath>

#include "attention/metric_options.h"
#include "ops/layer.h"

namespace metaformer {

// Positions in a row-major lower triangle: entry (i, j), i >= j, of a k x k matrix is at i (i + 1) / 2 + j.
// The returned index, k * k long, says for each entry of the dense symmetric matrix which packed entry it is.
torch::Tensor symmetric_index(std::int64_t k);

// Dense [n, k, k] from packed [n, k (k + 1) / 2] by symmetric_index(k), which lies on the same device: symmetric, so an
// off-diagonal entry's gradient is the sum of its two.
torch::Tensor unpack_symmetric(const torch::Tensor& packed_nl, const torch::Tensor& index, std::int64_t k);

// Packed identity matrices, [n, k (k + 1) / 2].
torch::Tensor packed_identity(std::int64_t heads, std::int64_t k);

// Owns the parameter of one constraint, registered in the given module, and applies the metric.
class MetricTensor {
 public:
  // Of a distance the diagonal is softplus of its parameter: never negative. `temperature_n`: a factor of each head's
  // M, or undefined.
  MetricTensor(Layer& owner, const MetricOptions& options, const MixerShape& shape, torch::Tensor temperature_n);

  // q_bnck = p_bnck M.
  torch::Tensor apply(const torch::Tensor& p_bnck) const;

  // M, with its fixed norm and its temperature, as the kernels take it: [n, k, k], a diagonal [n, k], or undefined for
  // the identity.
  torch::Tensor form() const;

  // The same as [n, k, k], where its parameters lie; the identity has none, and is made on `device`.
  torch::Tensor dense_nkk(torch::Device device = torch::kCPU) const;

  // Scales a parameter drawn from N(0, 1) so that the Frobenius norm of each head's M has the root mean square `norm`.
  // A diagonal that must be positive becomes a multiple of the identity of that norm. Not for the identity.
  void scale_to_norm(double norm);

  // Whether the Frobenius norm of M, before its temperature, is that of the identity whatever the parameter.
  bool has_fixed_norm() const { return fixed_norm_ || constraint_ == MetricConstraint::identity; }

  // The Frobenius norm of the identity.
  double identity_norm() const { return std::sqrt(static_cast<double>(k_)); }

 private:
  torch::Tensor learned_form() const;  // M before its norm is fixed, without the temperature
  torch::Tensor unpacked_nkk() const;  // of a packed parameter, symmetric

  MetricConstraint constraint_;
  bool non_negative_, fixed_norm_;
  std::int64_t heads_, k_;
  torch::Tensor temperature_n_;
  torch::Tensor parameter_;      // undefined for identity
  mutable torch::Tensor index_;  // of a packed parameter: symmetric_index, on the parameter's device
};

}  // namespace metaformer
