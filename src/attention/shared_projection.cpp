#include "attention/shared_projection.h"

#include <cmath>
#include <utility>

#include "ops/attention.h"
#include "ops/fused_metric.h"

namespace metaformer {

// p, and the values where they are not p.
static std::int64_t projections(MixerValues values) { return values == MixerValues::own ? 2 : 1; }

SharedProjection::SharedProjection(Layer& owner, const MixerShape& shape, MixerValues values, bool qk_norm,
                                   bool learned_temperature)
    : shape_(shape),
      values_(values),
      layer_(owner.register_module("projection", Linear(shape.width, projections(values) * shape.width, shape.bias,
                                                        Init::normal(), projections(values)))),
      temperature_n_(add_temperature(owner, shape.heads, learned_temperature)) {
  if (shape.crosses)
    query_layer_ = owner.register_module(
        "query_projection", Linear(shape.width, shape.width, shape.bias, Init::normal(), /*hidden_matrices=*/1));
  if (qk_norm) norm_ = owner.register_module("norm", HeadNorm(shape.head_width(), !learned_temperature));
}

SharedProjection::Vectors SharedProjection::vectors_of(const torch::Tensor& context_bed) {
  const auto projected = layer_(context_bed);
  const auto part = [&](std::int64_t first) {
    return split_heads(projected.narrow(2, first, shape_.width), shape_.heads);
  };
  const auto projected_bnek = part(0);
  const auto p_bnek = normalised(projected_bnek);
  switch (values_) {
    case MixerValues::shared:
      return {p_bnek, p_bnek};
    case MixerValues::unnormalised:
      return {p_bnek, projected_bnek};
    case MixerValues::own:
      break;
  }
  return {p_bnek, part(value_begin())};
}

SharedProjection::Sides SharedProjection::project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                                                  MixerState* state) {
  if (!shape_.crosses) {
    auto seen = vectors_of(context_bed);
    const auto newest = is_end_of(x_bcd, context_bed) ? seen.newest(x_bcd.size(1)) : vectors_of(x_bcd);
    if (state != nullptr) seen = extended(seen, *state);
    return {newest, seen};
  }
  const auto p_bnck = normalised(split_heads(query_layer_(x_bcd), shape_.heads));
  const auto seen = state == nullptr  ? vectors_of(context_bed)
                    : state->holds(0) ? Vectors{state->held(0), state->held(value_slot())}
                                      : extended(vectors_of(context_bed), *state);
  return {{p_bnck, p_bnck}, seen};
}

SharedProjection::Vectors SharedProjection::extended(const Vectors& newest, MixerState& state) const {
  const auto p_bnek = state.extend(0, newest.p_bnck);
  return {p_bnek, shares_values() ? p_bnek : state.extend(value_slot(), newest.value_bnck)};
}

torch::Tensor SharedProjection::rows_of(const Linear& layer) const {
  return layer->weight().narrow(0, 0, shape_.width).view({shape_.heads, shape_.head_width(), shape_.width});
}

void SharedProjection::scale_scores(double factor, Linear& output) {
  if (temperature_n_.defined()) {
    temperature_n_.mul_(factor);
    return;
  }
  const double of_p = std::sqrt(factor);  // scores grow with the square of p
  if (is_normalised()) {
    norm_->gain().mul_(of_p);
  } else {
    layer_->weight().narrow(0, 0, shape_.width).mul_(of_p);
    if (shape_.crosses) query_layer_->weight().mul_(of_p);
  }
  if (shares_values()) output->weight().div_(of_p);
}

double FormMixer::scale() const { return 1 / std::sqrt(static_cast<double>(shape_.head_width())); }

torch::Tensor FormMixer::attend_fused(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek,
                                      const torch::Tensor& form, bool distance, const Visibility& visibility,
                                      Pass& pass) {
  if (!std::exchange(checked_, true)) require_finite_form(form);
  return fused_metric_attention(p_bnck, p_bnek, form,
                                {.distance = distance,
                                 .causal = visibility.causal,
                                 .query_segment_bc = visibility.query_segment_bc,
                                 .key_segment_be = visibility.key_segment_be,
                                 .scale = scale(),
                                 .dropout = shape_.dropout},
                                pass);
}

ScoreDecoderParts FormMixer::decoder_parts() const {
  return {.shape = shape_,
          .projection = LinearDecoder(projection_.layer()),
          .output = LinearDecoder(output_),
          .value_begin = projection_.value_begin(),
          .value_slot = projection_.value_slot(),
          .key_gain_nk = projection_.gain_nk()};
}

}  // namespace metaformer
