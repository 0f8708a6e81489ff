#include "attention/visibility.h"

namespace metaformer {

torch::Tensor offset_ce(std::int64_t queries, std::int64_t keys, torch::Device device) {
  const auto options = torch::TensorOptions().dtype(torch::kLong).device(device);
  return torch::arange(keys, options).unsqueeze(0) - torch::arange(keys - queries, keys, options).unsqueeze(1);
}

torch::Tensor visible_bce(const Visibility& visibility, std::int64_t queries, std::int64_t keys, torch::Device device) {
  auto& visible = visibility.last_visible_bce;
  if (visible.defined() && visible.size(1) == queries && visible.size(2) == keys && visible.device() == device)
    return visible;
  visible = torch::Tensor();
  if (visibility.has_segments()) {
    const auto query = visibility.query_segment_bc.unsqueeze(2);
    visible = (query == visibility.key_segment_be.unsqueeze(1)).logical_and(query >= 0);
  }
  const bool cuts_off = visibility.window > 0 && keys > visibility.window;
  if (visibility.causal && (queries > 1 || cuts_off)) {
    const auto offset = offset_ce(queries, keys, device);
    auto in_reach = offset <= 0;
    if (cuts_off) in_reach = in_reach.logical_and(offset > -visibility.window);
    visible = visible.defined() ? visible.logical_and(in_reach.unsqueeze(0)) : in_reach.unsqueeze(0);
  }
  return visible;
}

Visibility self_visibility(bool causal, const torch::Tensor& segment_bc) {
  return {.causal = causal, .query_segment_bc = segment_bc, .key_segment_be = segment_bc};
}

}  // namespace metaformer
