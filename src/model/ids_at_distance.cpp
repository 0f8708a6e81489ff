#include "model/ids_at_distance.h"

#include <algorithm>

namespace metaformer {

torch::Tensor ids_at_distance(const Batch& batch, std::int64_t distance) {
  const auto before = std::max<std::int64_t>(0, -distance), behind = std::max<std::int64_t>(0, distance);
  const auto shifted = [&](const torch::Tensor& x_bc) {
    return torch::constant_pad_nd(x_bc, {before, behind}, -1).narrow(1, behind, x_bc.size(1));
  };
  const auto ids_bc = shifted(batch.ids_bc);
  const auto& segments_bc = batch.segments_bc;
  if (!segments_bc.defined()) return ids_bc;
  return ids_bc.masked_fill((segments_bc < 0) | (shifted(segments_bc) != segments_bc), -1);
}

}  // namespace metaformer
