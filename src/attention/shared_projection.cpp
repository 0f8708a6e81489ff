#include "attention/shared_projection.h"

#include "ops/heads.h"

namespace metaformer {

// p, and the values where they are not p.
static std::int64_t projections(MixerValues values) { return values == MixerValues::own ? 2 : 1; }

SharedProjection::SharedProjection(torch::nn::Module& owner, const MixerShape& shape, MixerValues values, bool qk_norm)
    : shape_(shape),
      values_(values),
      layer_(owner.register_module("projection", Linear(shape.width, projections(values) * shape.width, shape.bias,
                                                        Init::normal(), projections(values)))) {
  if (qk_norm) norm_ = owner.register_module("norm", HeadNorm(shape.head_width()));
}

SharedProjection::Vectors SharedProjection::project(const torch::Tensor& x_bcd) {
  const auto projected = layer_(x_bcd);
  const auto part = [&](std::int64_t first) {
    return split_heads(projected.narrow(2, first, shape_.width), shape_.heads);
  };
  const auto p_bnck = is_normalised() ? norm_(part(0)) : part(0);
  return {p_bnck, has_own_values() ? part(value_begin()) : p_bnck};
}

SharedProjection::Vectors SharedProjection::remember(const Vectors& newest, MixerState& state) const {
  const auto p_bnek = state.extend(0, newest.p_bnck);
  return {p_bnek, has_own_values() ? state.extend(1, newest.value_bnck) : p_bnek};
}

torch::Tensor SharedProjection::rows_nkd() const {
  return layer_->weight().narrow(0, 0, shape_.width).view({shape_.heads, shape_.head_width(), shape_.width});
}

void SharedProjection::scale_scored(double factor) {
  if (is_normalised())
    norm_->gain().mul_(factor);
  else
    layer_->weight().narrow(0, 0, shape_.width).mul_(factor);
}

}  // namespace metaformer
