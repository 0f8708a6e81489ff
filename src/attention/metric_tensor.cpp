#include "attention/metric_tensor.h"

#include <cmath>
#include <utility>

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

MetricTensor::MetricTensor(Layer& owner, const MetricOptions& options, const MixerShape& shape,
                           torch::Tensor temperature_n)
    : constraint_(options.constraint),
      non_negative_(options.score == MetricScore::distance),
      fixed_norm_(options.fixed_norm),
      heads_(shape.heads),
      k_(shape.head_width()),
      temperature_n_(std::move(temperature_n)),
      index_(symmetric_index(k_)) {
  switch (constraint_) {
    case MetricConstraint::symmetric:
      parameter_ = owner.add_parameter("packed_metric", packed_identity(heads_, k_), score_form_spec);
      break;
    case MetricConstraint::psd:
      parameter_ = owner.add_parameter("packed_factor", packed_identity(heads_, k_), score_form_spec);
      break;
    case MetricConstraint::diagonal:
      parameter_ = owner.add_parameter(
          "diagonal_metric", torch::full({heads_, k_}, non_negative_ ? softplus_inverse(1) : 1.0), score_form_spec);
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

torch::Tensor MetricTensor::learned_form() const {
  switch (constraint_) {
    case MetricConstraint::symmetric:
      return unpacked_nkk();
    case MetricConstraint::psd: {
      const auto factor = unpacked_nkk().tril();
      return torch::bmm(factor, factor.transpose(1, 2));
    }
    case MetricConstraint::diagonal:
      return non_negative_ ? torch::softplus(parameter_) : parameter_;
    case MetricConstraint::identity:
      break;
  }
  return {};
}

torch::Tensor MetricTensor::form() const {
  auto form = learned_form();
  if (fixed_norm_) form = with_identity_norm(form);
  if (!temperature_n_.defined()) return form;
  return form.defined() ? scaled_forms(form, temperature_n_) : temperature_n_.unsqueeze(1).expand({heads_, k_});
}

torch::Tensor MetricTensor::apply(const torch::Tensor& p_bnck) const {
  const auto form = this->form();
  if (!form.defined()) return p_bnck;
  return form.dim() == 3 ? per_head_product(p_bnck, form) : p_bnck * form.unsqueeze(1).to(p_bnck.scalar_type());
}

torch::Tensor MetricTensor::dense_nkk(torch::Device device) const {
  const auto form = this->form();
  if (!form.defined()) return torch::eye(k_, device).repeat({heads_, 1, 1});
  return form.dim() == 3 ? form : torch::diag_embed(form);
}

}  // namespace metaformer
