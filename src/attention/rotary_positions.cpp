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

static bool serves(const RotaryTables& tables, std::int64_t tokens, torch::Device device, torch::ScalarType type) {
  const auto& cos_cr = tables.cos_cr;
  return cos_cr.size(0) >= tokens && cos_cr.device() == device && cos_cr.scalar_type() == type;
}

std::shared_ptr<const RotaryTables> RotaryPositions::tables_for(std::int64_t tokens, torch::Device device,
                                                                torch::ScalarType type) {
  auto tables = tables_.load();
  if (tables != nullptr && serves(*tables, tokens, device, type)) return tables;
  const torch::InferenceMode none(false);  // they may be kept for backward later
  const torch::NoGradGuard no_grad;
  const auto wide = make_rotary_tables(config_, key_width_, tokens);
  tables =
      std::make_shared<const RotaryTables>(RotaryTables{wide.cos_cr.to(device, type), wide.sin_cr.to(device, type)});
  tables_.store(tables);
  return tables;
}

torch::Tensor RotaryPositions::rotate(const torch::Tensor& x_bnck, std::int64_t tokens) {
  const auto type = x_bnck.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const auto tables = tables_for(tokens, x_bnck.device(), type);
  const auto length = x_bnck.size(2), first = tokens - length;
  return rotate_pairs(x_bnck, tables->cos_cr.narrow(0, first, length), tables->sin_cr.narrow(0, first, length));
}

}  // namespace metaformer
