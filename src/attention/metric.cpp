// Metric attention: r = p M p' with M symmetric, or minus the squared distance that M induces. Keys and values are the
// same projection p, so a cache holds only p. Formulas: docs/architecture.md, "The mixers".

#include <cmath>
#include <optional>
#include <utility>

#include "attention/metric_options.h"
#include "attention/metric_tensor.h"
#include "attention/mixer.h"
#include "attention/mixer_decoder.h"
#include "attention/score_attention.h"
#include "ops/fused_metric.h"
#include "ops/heads.h"

namespace metaformer {

namespace {

// -(p_c - p_e) M (p_c - p_e) for every pair, written out: [b, n, c, e].
torch::Tensor distance_scores(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek,
                              const torch::Tensor& metric_nkk) {
  const auto difference = p_bnck.unsqueeze(3) - p_bnek.unsqueeze(2);
  return -torch::einsum("bncek,nkj,bncej->bnce", {difference, metric_nkk, difference});
}

// The form that counts a pair of features twice, as the published formula does: written for k >= j.
torch::Tensor published_form(const torch::Tensor& metric_nkk) {
  return torch::diag_embed(metric_nkk.diagonal(0, 1, 2)) + 2 * metric_nkk.tril(-1);
}

// The published formula, kept for comparison: it counts a pair of tokens and a pair of features twice each. Written for
// c >= e and k >= j and mirrored, with the diagonal of both unscaled.
torch::Tensor published_scores(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek,
                               const torch::Tensor& metric_nkk) {
  const auto once_nkk = published_form(metric_nkk);
  const auto later_bnce = torch::einsum("bnck,nkj,bnej->bnce", {p_bnck, once_nkk, p_bnek});
  const auto earlier_bnce = torch::einsum("bnck,njk,bnej->bnce", {p_bnck, once_nkk, p_bnek});
  const auto offset = offset_ce(p_bnck.size(2), p_bnek.size(2), p_bnck.device());
  return torch::where(offset == 0, later_bnce, 2 * torch::where(offset < 0, later_bnce, earlier_bnce));
}

class Metric : public Mixer {
 public:
  Metric(const MetricOptions& options, const MixerShape& shape)
      : options_(options),
        shape_(shape),
        projection_(register_module("projection", Linear(shape.width, shape.width, shape.bias))),
        output_(
            register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)))),
        metric_(*this, options.constraint, options.score == MetricScore::distance, shape.heads, shape.head_width()) {}

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) override {
    const auto p_bnck = project(x_bcd);
    auto p_bnek = context_bed.is_same(x_bcd) ? p_bnck : project(context_bed);
    if (state != nullptr) p_bnek = state->extend(0, p_bnek);
    // The newest tokens of a sequence being generated look at others than themselves: composed.
    const bool fused = options_.backend == Backend::fused && state == nullptr;
    return output_(merge_heads(fused ? attend_fused(p_bnck, visibility) : attend(p_bnck, p_bnek, visibility, pass)));
  }

  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity) const override {
    const torch::NoGradGuard no_grad;
    const bool distance = options_.score == MetricScore::distance;
    const bool published = options_.score == MetricScore::as_published;
    torch::Tensor form_nkj;
    if (distance)
      form_nkj = 2 * metric_.dense_nkk();
    else if (published)
      form_nkj = 2 * published_form(metric_.dense_nkk());
    else if (options_.constraint != MetricConstraint::identity)
      form_nkj = metric_.dense_nkk();
    return make_score_decoder({.shape = shape_,
                               .projection = LinearDecoder(projection_),
                               .output = LinearDecoder(output_),
                               .form_nkj = form_nkj,
                               .distance = distance,
                               .newest_share = published ? 0.5F : 1.0F},
                              batch, capacity);
  }

  std::optional<ScoreForm> score_form() const override {
    // The published scores mirror a form at the diagonal of the tokens: they are of no single one.
    if (options_.score == MetricScore::as_published) return std::nullopt;
    const auto projection_nkd = projection_->weight().view({shape_.heads, shape_.head_width(), shape_.width});
    const auto image_nkd = torch::matmul(metric_.dense_nkk().to(projection_nkd.options()), projection_nkd);
    const double twice = options_.score == MetricScore::distance ? 2 : 1;
    return ScoreForm{.left_nrd = projection_nkd, .right_nrd = twice * image_nkd};
  }

  void scale_initial_scores(double projection_variance) override {
    const double wanted = options_.score_std / score_std_per_norm(projection_variance);
    if (options_.constraint == MetricConstraint::identity) {
      // There is no metric to scale. Scores grow with the square of p; the output projection undoes what that does to
      // the values, which are p too.
      const double factor = std::sqrt(wanted / metric_.identity_norm());
      projection_->weight().mul_(factor);
      output_->weight().div_(factor);
    } else {
      metric_.scale_to_norm(wanted);
    }
  }

 private:
  torch::Tensor project(const torch::Tensor& x_bcd) { return split_heads(projection_(x_bcd), shape_.heads); }

  double scale() const { return 1 / std::sqrt(static_cast<double>(shape_.head_width())); }

  // Standard deviation of the scores (after 1 / sqrt(k)) where the Frobenius norm of M is 1 and the entries of p are
  // independent, of variance v. Var(p M p') = v^2 |M|^2; Var(p' M p') = 2 v^2 |M|^2 for normal p'.
  double score_std_per_norm(double v) const {
    const auto k = static_cast<double>(shape_.head_width());
    switch (options_.score) {
      case MetricScore::bilinear:
        return v / std::sqrt(k);
      case MetricScore::distance:  // 2 p M p' - p' M p'
        return std::sqrt(6.0) * v / std::sqrt(k);
      case MetricScore::as_published:  // twice the form that has each M_ij, i > j, once and doubled
        return 2 * std::sqrt((2 * k - 1) / k) * v / std::sqrt(k);
    }
    return 0;
  }

  torch::Tensor attend(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek, const Visibility& visibility,
                       Pass& pass) const {
    const ScoreMixing mixing{.scale = scale(), .dropout = shape_.dropout};
    if (options_.backend == Backend::reference || options_.score == MetricScore::as_published)
      return mix_by_scores(scores(p_bnck, p_bnek), p_bnek, visibility, mixing, pass);
    if (options_.score == MetricScore::distance) return composed_distance(p_bnck, p_bnek, visibility, mixing, pass);
    return composed_attention(metric_.apply(p_bnck), p_bnek, p_bnek, visibility, mixing, pass);
  }

  torch::Tensor attend_fused(const torch::Tensor& p_bnck, const Visibility& visibility) {
    const auto form = metric_.kernel_form();
    if (!std::exchange(checked_, true)) require_finite_form(form);
    return fused_metric_attention(p_bnck, form,
                                  {.distance = options_.score == MetricScore::distance,
                                   .causal = visibility.causal,
                                   .segment_bc = visibility.query_segment_bc,
                                   .scale = scale()});
  }

  torch::Tensor scores(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek) const {
    const auto metric_nkk = metric_.dense_nkk().to(p_bnck.options());
    switch (options_.score) {
      case MetricScore::distance:
        return distance_scores(p_bnck, p_bnek, metric_nkk);
      case MetricScore::as_published:
        return published_scores(p_bnck, p_bnek, metric_nkk);
      case MetricScore::bilinear:
        break;
    }
    return torch::einsum("bnck,nkj,bnej->bnce", {p_bnck, metric_nkk, p_bnek});
  }

  // The softmax cancels what is constant along a row, -p_c M p_c. What is left, 2 p_c M p_e - p_e M p_e, is one product
  // of vectors with a feature more: q' = [2 p_c M, 1], k' = [p_e, -p_e M p_e], v' = [p_e, 0]. Below float32 the
  // gradient of M would drown in that cancellation, so such inputs are widened first.
  torch::Tensor composed_distance(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek,
                                  const Visibility& visibility, const ScoreMixing& mixing, Pass& pass) const {
    const auto given = p_bnek.scalar_type();
    const bool narrow = given == torch::kBFloat16 || given == torch::kHalf;
    std::optional<c10::impl::ExcludeDispatchKeyGuard> without_autocast;
    if (narrow) without_autocast.emplace(c10::autocast_dispatch_keyset);
    const auto wide = narrow ? torch::kFloat : given;
    const auto p_e = p_bnek.to(wide);
    const auto image_e = metric_.apply(p_e);  // p_e M
    const auto image_c = p_bnck.is_same(p_bnek) ? image_e : metric_.apply(p_bnck.to(wide));
    const auto length_bne1 = (image_e * p_e).sum(-1, true);
    const auto q = torch::cat({2 * image_c, torch::ones_like(image_c.narrow(3, 0, 1))}, 3);
    const auto k = torch::cat({p_e, -length_bne1}, 3);
    const auto v = torch::constant_pad_nd(p_e, {0, 1});
    const auto t = composed_attention(q, k, v, visibility, mixing, pass);
    return t.narrow(3, 0, shape_.head_width()).to(given);
  }

  MetricOptions options_;
  MixerShape shape_;
  Linear projection_, output_;
  MetricTensor metric_;
  bool checked_ = false;  // the form is finite, as far as fused kernels must know
};

}  // namespace

std::shared_ptr<Mixer> make(const MetricOptions& options, const MixerShape& shape) {
  return std::make_shared<Metric>(options, shape);
}

}  // namespace metaformer
