#include "attention/metric_tensor.h"

#include <cmath>

#include "ops/heads.h"

namespace metaformer {

torch::Tensor symmetric_index(std::int64_t k) {
  auto index = torch::empty({k, k}, torch::kLong);
  auto at = index.accessor<std::int64_t, 2>();
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j <= i; ++j) at[i][j] = at[j][i] = i * (i + 1) / 2 + j;
  return index.flatten();
}

torch::Tensor unpack_symmetric(const torch::Tensor& packed_nl, const torch::Tensor& index, std::int64_t k) {
  return packed_nl.index_select(1, index).unflatten(1, {k, k});
}

torch::Tensor packed_identity(std::int64_t heads, std::int64_t k) {
  auto packed = torch::zeros({heads, k * (k + 1) / 2});
  for (std::int64_t i = 0; i < k; ++i) packed.select(1, i * (i + 1) / 2 + i).fill_(1);
  return packed;
}

static double softplus_inverse(double y) { return y + std::log(-std::expm1(-y)); }

MetricTensor::MetricTensor(Layer& owner, MetricConstraint constraint, bool non_negative, std::int64_t heads,
                           std::int64_t k)
    : constraint_(constraint), non_negative_(non_negative), heads_(heads), k_(k), index_(symmetric_index(k)) {
  switch (constraint) {
    case MetricConstraint::symmetric:
      parameter_ = owner.add_parameter("packed_metric", packed_identity(heads, k), score_form_spec);
      break;
    case MetricConstraint::psd:
      parameter_ = owner.add_parameter("packed_factor", packed_identity(heads, k), score_form_spec);
      break;
    case MetricConstraint::diagonal:
      parameter_ = owner.add_parameter(
          "diagonal_metric", torch::full({heads, k}, non_negative ? softplus_inverse(1) : 1.0), score_form_spec);
      break;
    case MetricConstraint::identity:
      break;
  }
}

void MetricTensor::scale_to_norm(double norm) {
  const auto k = static_cast<double>(k_);
  switch (constraint_) {
    case MetricConstraint::symmetric:
      parameter_.mul_(norm / k);
      break;
    case MetricConstraint::psd:  // E |L L^T|^2 for standard normal entries of the triangle L
      parameter_.mul_(std::sqrt(norm / std::sqrt(k * (k + 1) * (4 * k + 5) / 6)));
      break;
    case MetricConstraint::diagonal:
      if (non_negative_) {
        parameter_.fill_(softplus_inverse(norm / std::sqrt(k)));
      } else {
        parameter_.mul_(norm / std::sqrt(k));
      }
      break;
    case MetricConstraint::identity:
      break;
  }
}

torch::Tensor MetricTensor::unpacked_nkk() const {
  if (index_.device() != parameter_.device()) index_ = index_.to(parameter_.device());
  return unpack_symmetric(parameter_, index_, k_);
}

torch::Tensor MetricTensor::diagonal_nk() const { return non_negative_ ? torch::softplus(parameter_) : parameter_; }

torch::Tensor MetricTensor::apply(const torch::Tensor& p_bnck) const {
  switch (constraint_) {
    case MetricConstraint::identity:
      return p_bnck;
    case MetricConstraint::diagonal:
      return p_bnck * diagonal_nk().unsqueeze(1).to(p_bnck.scalar_type());
    case MetricConstraint::symmetric:
    case MetricConstraint::psd:
      return per_head_product(p_bnck, dense_nkk());
  }
  return {};
}

torch::Tensor MetricTensor::kernel_form() const {
  switch (constraint_) {
    case MetricConstraint::identity:
      return {};
    case MetricConstraint::diagonal:
      return diagonal_nk();
    case MetricConstraint::symmetric:
    case MetricConstraint::psd:
      return dense_nkk();
  }
  return {};
}

torch::Tensor MetricTensor::dense_nkk(torch::Device device) const {
  switch (constraint_) {
    case MetricConstraint::symmetric:
      return unpacked_nkk();
    case MetricConstraint::psd: {
      const auto factor = unpacked_nkk().tril();
      return torch::bmm(factor, factor.transpose(1, 2));
    }
    case MetricConstraint::diagonal:
      return torch::diag_embed(diagonal_nk());
    case MetricConstraint::identity:
      return torch::eye(k_, device).repeat({heads_, 1, 1});
  }
  return {};
}

}  // namespace metaformer
