#include "bench/attention_core.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "attention/lsh.h"
#include "attention/metric_options.h"
#include "attention/mixer.h"
#include "attention/mixers.h"
#include "attention/quadratic_options.h"
#include "attention/scaled_dot_product_options.h"
#include "attention/score_attention.h"
#include "ops/attention.h"
#include "ops/fused_metric.h"

namespace metaformer {

namespace {

using torch::Tensor;

double root(std::int64_t x) { return std::sqrt(static_cast<double>(x)); }

ScoreMixing mixing_of(const Tensor& p_bnck) { return {.scale = 1 / root(p_bnck.size(3))}; }

// p M, as the mixers compute it.
Tensor image_of(const Tensor& p_bnck, const Tensor& form) {
  if (!form.defined()) return p_bnck;
  return form.dim() == 3 ? per_head_product(p_bnck, form) : p_bnck * form.unsqueeze(1).to(p_bnck.scalar_type());
}

Tensor dense(const Tensor& form, const Tensor& p_bnck) {
  if (!form.defined()) return torch::eye(p_bnck.size(3), p_bnck.options()).repeat({p_bnck.size(1), 1, 1});
  return form.dim() == 3 ? form : torch::diag_embed(form);
}

// A distance whose scores are made as the formula is written.
Tensor reference_metric(const Tensor& p_bnck, const Tensor& form, bool distance, const Visibility& visibility) {
  const auto form_nkk = dense(form, p_bnck).to(p_bnck.scalar_type());
  Tensor score_bnce;
  if (distance) {
    const auto difference = p_bnck.unsqueeze(3) - p_bnck.unsqueeze(2);
    score_bnce = -torch::einsum("bncek,nkj,bncej->bnce", {difference, form_nkk, difference});
  } else {
    score_bnce = torch::einsum("bnck,nkj,bnej->bnce", {p_bnck, form_nkk, p_bnck});
  }
  Pass pass;
  return mix_by_scores(score_bnce, p_bnck, p_bnck, visibility, mixing_of(p_bnck), pass);
}

// As attention/metric.cpp composes a distance, without positions: 2 p_c M p_e - p_e M p_e, in float32 at least.
Tensor composed_distance(const Tensor& given_bnck, const Tensor& form, const Visibility& visibility) {
  const auto given = given_bnck.scalar_type();
  const bool narrow = given == torch::kBFloat16 || given == torch::kHalf;
  const auto p_bnck = narrow ? given_bnck.to(torch::kFloat) : given_bnck;
  const auto image_bnck = image_of(p_bnck, form);
  const auto length_bnc1 = (image_bnck * p_bnck).sum(-1, true);
  Pass pass;
  return attend_with_key_term(2 * image_bnck, p_bnck, -length_bnc1, p_bnck, visibility, mixing_of(p_bnck),
                              Backend::composed, pass)
      .to(given);
}

Tensor fused(const Tensor& p_bnck, const Tensor& form, bool distance, const Visibility& visibility) {
  Pass pass;
  return fused_metric_attention(p_bnck, p_bnck, form,
                                {.distance = distance,
                                 .causal = visibility.causal,
                                 .query_segment_bc = visibility.query_segment_bc,
                                 .key_segment_be = visibility.key_segment_be,
                                 .scale = mixing_of(p_bnck).scale},
                                pass);
}

Tensor mix_metric(const MetricOptions& options, const CoreInputs& in, const Visibility& visibility) {
  const auto& p_bnck = in[0];
  const auto form = in.size() > 1 ? in[1] : Tensor();
  const bool distance = options.score == MetricScore::distance;
  if (options.backend == Backend::fused) return fused(p_bnck, form, distance, visibility);
  if (options.backend == Backend::reference) return reference_metric(p_bnck, form, distance, visibility);
  if (distance) return composed_distance(p_bnck, form, visibility);
  Pass pass;
  return attend(image_of(p_bnck, form), p_bnck, p_bnck, visibility, mixing_of(p_bnck), options.backend, pass);
}

Tensor mix_quadratic(const QuadraticOptions& options, const CoreInputs& in, const Visibility& visibility) {
  Pass pass;
  if (options.form == QuadraticForm::full) {
    const auto& p_bnck = in[1];
    const auto x_bncd = in[0].unsqueeze(1).expand({-1, p_bnck.size(1), -1, -1});
    const auto q_bncd = per_head_product(x_bncd, in[2]);
    return attend(q_bncd, x_bncd.to(q_bncd.scalar_type()), p_bnck, visibility, mixing_of(p_bnck), options.backend,
                  pass);
  }
  if (options.backend == Backend::fused) return fused(in[0], in[1], /*distance=*/false, visibility);
  const auto q_bnck = per_head_product(in[0], in[1]);
  return attend(q_bnck, in[0].to(q_bnck.scalar_type()), in[0], visibility, mixing_of(in[0]), options.backend, pass);
}

// The inputs of one shape.
class InputDraws {
 public:
  InputDraws(const AttentionShape& shape, NormalDraws& draws) : shape_(shape), draws_(draws) {}

  Tensor inputs() { return draws_.draw({shape_.batch, shape_.context, shape_.width()}); }
  Tensor vectors() { return split_heads(inputs(), shape_.heads).detach(); }

  // W of scores p W p / sqrt(k) with the standard deviation 1; U of x U x / sqrt(k).
  Tensor form(std::int64_t side) {
    return draws_.draw({shape_.heads, side, side}) * (root(shape_.head_width) / static_cast<double>(side));
  }

  CoreInputs metric(const MetricOptions& options) {
    const auto n = shape_.heads, k = shape_.head_width;
    const bool distance = options.score == MetricScore::distance;
    const double norm = root(k) / (distance ? std::sqrt(6.0) : 1);  // docs/architecture.md, "Randomness"
    if (options.constraint == MetricConstraint::identity) return {vectors()};
    if (options.constraint == MetricConstraint::diagonal) {
      const auto diagonal_nk = draws_.draw({n, k});
      return {vectors(), to_norm(distance ? diagonal_nk.abs() : diagonal_nk, norm)};
    }
    const auto factor_nkk = draws_.draw({n, k, k}), transposed_nkk = factor_nkk.transpose(1, 2);
    const bool psd = options.constraint == MetricConstraint::psd;
    return {vectors(), to_norm(psd ? torch::bmm(factor_nkk, transposed_nkk) : factor_nkk + transposed_nkk, norm)};
  }

 private:
  // Every head's form with that norm.
  static Tensor to_norm(const Tensor& form, double norm) {
    const auto flat = form.flatten(1);
    return (flat * (norm / flat.norm(2, 1, true))).view_as(form);
  }

  AttentionShape shape_;
  NormalDraws& draws_;
};

}  // namespace

NormalDraws::NormalDraws(torch::Device device) : device_(device), generator_(at::detail::createCPUGenerator(1)) {}

Tensor NormalDraws::draw(const std::vector<std::int64_t>& sizes) {
  return device_.is_cpu() ? torch::randn(sizes, generator_)
                          : torch::randn(sizes, torch::TensorOptions().dtype(torch::kFloat).device(device_));
}

std::optional<CoreInputs> draw_core_inputs(const MixerConfig& mixer, const AttentionShape& shape, NormalDraws& draws) {
  InputDraws of_shape(shape, draws);
  if (const auto* dot = mixer.get_if<ScaledDotProductOptions>()) {
    if (dot->qk_norm) return std::nullopt;
    return CoreInputs{of_shape.vectors(), of_shape.vectors(), of_shape.vectors()};
  }
  if (const auto* metric = mixer.get_if<MetricOptions>()) {
    const bool known = metric->values == MixerValues::shared && !metric->qk_norm && !metric->fixed_norm &&
                       metric->score != MetricScore::as_published;
    return known ? std::optional(of_shape.metric(*metric)) : std::nullopt;
  }
  if (const auto* quadratic = mixer.get_if<QuadraticOptions>()) {
    if (quadratic->values != MixerValues::shared || quadratic->qk_norm || quadratic->fixed_norm) return std::nullopt;
    if (quadratic->form == QuadraticForm::projected)
      return CoreInputs{of_shape.vectors(), of_shape.form(shape.head_width)};
    return CoreInputs{of_shape.inputs(), of_shape.vectors(), of_shape.form(shape.width())};
  }
  if (mixer.get_if<LshOptions>() != nullptr) return CoreInputs{of_shape.vectors(), of_shape.vectors()};
  if (make_mixer(mixer, shape.mixer_shape())->output() != nullptr) return std::nullopt;
  return CoreInputs{of_shape.inputs()};
}

CoreMix make_core_mix(const MixerConfig& mixer, const AttentionShape& shape) {
  if (const auto* dot = mixer.get_if<ScaledDotProductOptions>())
    return [backend = dot->backend](const CoreInputs& in, const Visibility& visibility) {
      Pass pass;
      return merge_heads(attend(in[0], in[1], in[2], visibility, mixing_of(in[0]), backend, pass));
    };
  if (const auto* metric = mixer.get_if<MetricOptions>())
    return [options = *metric](const CoreInputs& in, const Visibility& visibility) {
      return merge_heads(mix_metric(options, in, visibility));
    };
  if (const auto* quadratic = mixer.get_if<QuadraticOptions>())
    return [options = *quadratic](const CoreInputs& in, const Visibility& visibility) {
      return merge_heads(mix_quadratic(options, in, visibility));
    };
  if (const auto* lsh = mixer.get_if<LshOptions>())
    return [options = *lsh, context = shape.context](const CoreInputs& in, const Visibility& visibility) {
      Pass pass;
      return merge_heads(hash_and_attend(in[0], in[1], options, context, /*dropout=*/0, visibility, pass));
    };
  return [whole = make_mixer(mixer, shape.mixer_shape())](const CoreInputs& in, const Visibility& visibility) {
    Pass pass;
    return whole->mix(in[0], in[0], visibility, nullptr, pass);
  };
}

MixerCost layer_cost(const MixerConfig& mixer, const AttentionShape& shape, bool causal) {
  const auto b = static_cast<double>(shape.batch), c = static_cast<double>(shape.context);
  return mixer->cost(shape.mixer_shape(),
                     {.context = shape.context, .tokens = b * c, .pairs = b * (causal ? c * (c + 1) / 2 : c * c)});
}

double forward_operations(const MixerConfig& mixer, const AttentionShape& shape, bool causal) {
  return layer_cost(mixer, shape, causal).operations;
}

double projection_operations(const MixerConfig& mixer, const AttentionShape& shape) {
  double weights = 0;
  for (const auto& module : make_mixer(mixer, shape.mixer_shape())->modules())
    if (const auto* linear = dynamic_cast<const LinearImpl*>(module.get()))
      weights += static_cast<double>(linear->weight().numel());
  return 2 * static_cast<double>(shape.batch * shape.context) * weights;
}

}  // namespace metaformer
