#include "attention/rotary_positions.h"

#include "ops/rotary.h"

namespace metaformer {

// Angle of pair l at position c: c base^(-l / pairs).
RotaryTables make_rotary_tables(const RotaryPositionsConfig& config, std::int64_t key_width, std::int64_t tokens) {
  const auto pairs = config.rotated_width(key_width) / 2;
  const auto frequency_r = torch::pow(config.base, -torch::arange(pairs, torch::kDouble) / static_cast<double>(pairs));
  const auto angle_cr = torch::outer(torch::arange(tokens, torch::kDouble), frequency_r);
  return {angle_cr.cos(), angle_cr.sin()};
}

RotaryPositions::RotaryPositions(const RotaryPositionsConfig& config, std::int64_t key_width)
    : config_(config), key_width_(key_width) {}

void RotaryPositions::prepare_tables(std::int64_t tokens, torch::Device device, torch::ScalarType type) {
  const auto& cos_cr = tables_.cos_cr;
  if (cos_cr.defined() && cos_cr.size(0) >= tokens && cos_cr.device() == device && cos_cr.scalar_type() == type) return;
  const torch::InferenceMode none(false);  // they may be kept for backward later
  const torch::NoGradGuard no_grad;
  const auto wide = make_rotary_tables(config_, key_width_, tokens);
  tables_ = {wide.cos_cr.to(device, type), wide.sin_cr.to(device, type)};
}

torch::Tensor RotaryPositions::rotate(const torch::Tensor& x_bnck, std::int64_t tokens) {
  const auto type = x_bnck.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  prepare_tables(tokens, x_bnck.device(), type);
  const auto length = x_bnck.size(2), first = tokens - length;
  return rotate_pairs(x_bnck, tables_.cos_cr.narrow(0, first, length), tables_.sin_cr.narrow(0, first, length));
}

}  // namespace metaformer
