#include "attention/form_mixer.h"

#include <cmath>
#include <utility>

#include "ops/attention.h"
#include "ops/fused_metric.h"

namespace metaformer {

// p, and the values where they are not p.
static std::int64_t projections(MixerValues values) { return values == MixerValues::own ? 2 : 1; }

FormMixer::FormMixer(const MixerShape& shape, const KernelUse& kernels, MixerValues values, bool qk_norm,
                     bool learned_temperature, std::int64_t key_width)
    : shape_(shape),
      kernels_(kernels),
      values_(values),
      projection_(register_module("projection", Linear(shape.width, projections(values) * shape.width, shape.bias,
                                                       Init::normal(), projections(values)))),
      temperature_n_(add_temperature(*this, shape.heads, learned_temperature)) {
  if (shape.crosses)
    query_projection_ = register_module(
        "query_projection", Linear(shape.width, shape.width, shape.bias, Init::normal(), /*hidden_matrices=*/1));
  if (qk_norm) norm_ = register_module("norm", HeadNorm(shape.head_width(), !learned_temperature));
  output_ = register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)));
  positions_.emplace(*this, shape, key_width);
}

FormMixer::Vectors FormMixer::vectors_of(const torch::Tensor& context_bed) {
  const auto projected = projection_(context_bed);
  const auto part = [&](std::int64_t first) {
    return split_heads(projected.narrow(2, first, shape_.width), shape_.heads);
  };
  const auto projected_bnek = part(0);
  const auto p_bnek = normalised(projected_bnek);
  if (values_ == MixerValues::own) return {p_bnek, part(shape_.width)};
  return {p_bnek, shares_values() ? p_bnek : projected_bnek};
}

FormMixer::Sides FormMixer::project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, MixerState* state) {
  if (shape_.crosses) {
    const auto p_bnck = normalised(split_heads(query_projection_(x_bcd), shape_.heads));
    const auto seen = state == nullptr  ? vectors_of(context_bed)
                      : state->holds(0) ? Vectors{state->held(0), state->held(value_slot())}
                                        : extended(vectors_of(context_bed), *state);
    return {{p_bnck, p_bnck}, seen};
  }
  const auto seen = vectors_of(context_bed);
  const auto tokens = x_bcd.size(1), before = context_bed.size(1) - tokens;
  auto newest = seen;  // the very tensors where these are all
  if (!is_end_of(x_bcd, context_bed))
    newest = vectors_of(x_bcd);
  else if (before > 0)
    newest = {seen.p_bnck.narrow(2, before, tokens), seen.value_bnck.narrow(2, before, tokens)};
  return {newest, state == nullptr ? seen : extended(seen, *state)};
}

FormMixer::Vectors FormMixer::extended(const Vectors& newest, MixerState& state) const {
  const auto p_bnek = state.extend(0, newest.p_bnck);
  return {p_bnek, shares_values() ? p_bnek : state.extend(value_slot(), newest.value_bnck)};
}

torch::Tensor FormMixer::rows_nkd(const Linear& projection) const {
  return projection->weight().narrow(0, 0, shape_.width).view({shape_.heads, shape_.head_width(), shape_.width});
}

void FormMixer::scale_scores(double factor) {
  if (temperature_n_.defined()) {
    temperature_n_.mul_(factor);
    return;
  }
  const double of_p = std::sqrt(factor);  // scores grow with the square of p
  if (norm_.is_empty()) {
    projection_->weight().narrow(0, 0, shape_.width).mul_(of_p);
    if (shape_.crosses) query_projection_->weight().mul_(of_p);
  } else {
    norm_->gain().mul_(of_p);
  }
  if (shares_values()) output_->weight().div_(of_p);
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
          .projection = LinearDecoder(projection_),
          .output = LinearDecoder(output_),
          .value_begin = values_ == MixerValues::own ? shape_.width : 0,
          .value_slot = value_slot(),
          .key_gain_nk = gain_of(norm_, shape_.heads)};
}

}  // namespace metaformer
