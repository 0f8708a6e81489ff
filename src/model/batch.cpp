#include "model/batch.h"

namespace metaformer {

torch::Tensor segment_starts(const torch::Tensor& segments_bc) {
  const auto before_bc = torch::constant_pad_nd(segments_bc, {1, 0}, -1).narrow(1, 0, segments_bc.size(1));
  return (segments_bc != before_bc).logical_and(segments_bc >= 0);
}

torch::Tensor positions_in_segments(const torch::Tensor& segments_bc) {
  const auto place_c = torch::arange(segments_bc.size(1), segments_bc.options());
  return place_c - std::get<0>(torch::where(segment_starts(segments_bc), place_c, 0).cummax(1));
}

}  // namespace metaformer
