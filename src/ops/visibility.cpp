#include "ops/visibility.h"

namespace metaformer {

torch::Tensor offset_ce(std::int64_t queries, std::int64_t keys, torch::Device device) {
  const auto options = torch::TensorOptions().dtype(torch::kLong).device(device);
  return torch::arange(keys, options).unsqueeze(0) - torch::arange(keys - queries, keys, options).unsqueeze(1);
}

torch::Tensor visible_bce(const Visibility& visibility, std::int64_t queries, std::int64_t keys, torch::Device device) {
  torch::Tensor visible;
  const auto restrict_to = [&visible](const torch::Tensor& condition) {
    visible = visible.defined() ? visible.logical_and(condition) : condition;
  };
  if (visibility.has_segments()) {
    const auto query = visibility.query_segment_bc.unsqueeze(2);
    restrict_to((query == visibility.key_segment_be.unsqueeze(1)).logical_and(query >= 0));
  }
  if (visibility.causal && visibility.has_positions()) {
    restrict_to(visibility.key_position_be.unsqueeze(1) <= visibility.query_position_bc.unsqueeze(2));
  } else if (visibility.causal && queries > 1) {
    restrict_to((offset_ce(queries, keys, device) <= 0).unsqueeze(0));
  }
  return visible;
}

Visibility self_visibility(bool causal, const torch::Tensor& segment_bc) {
  return {.causal = causal,
          .query_segment_bc = segment_bc,
          .key_segment_be = segment_bc,
          .query_position_bc = {},
          .key_position_be = {}};
}

}  // namespace metaformer
