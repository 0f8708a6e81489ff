// Attention whose scores are p_c F p_e, with a form F of each head: metric attention (F = M, a metric tensor) and
// quadratic attention (F free). Formulas: docs/architecture.md, "The mixers".

#include <cmath>
#include <optional>
#include <utility>

#include "attention/kernel_choice.h"
#include "attention/mixer_decoder.h"
#include "attention/score_attention.h"
#include "ops/attention.h"
#include "ops/fused_metric.h"
#include "ops/library_metric.h"

namespace metaformer {

namespace {

// The values are the projection p, unless they have a projection of their own. If the context is another sequence, each
// side has its own projection, and scores compare the two: p_c of the queries, and p_e of the context, which is also
// its values.
class FormMixer : public Mixer {
 public:
  bool reads_by_products() const override { return true; }

 protected:
  // `key_width`: features of the vectors that F compares.
  template <class Options>
  FormMixer(const Options& options, const MixerShape& shape, std::int64_t key_width)
      : shape_(shape),
        kernels_(kernel_use(options, shape)),
        values_(options.values),
        fixed_norm_(options.fixed_norm),
        projection_(register_module(
            "projection", Linear(shape.width, projections() * shape.width, shape.bias, Init::normal(), projections()))),
        temperature_n_(add_temperature(*this, shape.heads, options.learned_temperature)) {
    if (shape.crosses)
      query_projection_ = register_module(
          "query_projection", Linear(shape.width, shape.width, shape.bias, Init::normal(), /*hidden_matrices=*/1));
    if (options.qk_norm) norm_ = register_module("norm", HeadNorm(shape.head_width(), !options.learned_temperature));
    output_ = register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)));
    positions_.emplace(*this, shape, key_width, shape.head_width());
  }

  // Both are the same tensor if values are p.
  struct Vectors {
    torch::Tensor p_bnck, value_bnck;
  };
  // The vectors of x, and of all tokens that it sees, including those in the state: p in slot 0, other values in slot
  // 1. The vectors of another sequence are computed once for a state, and then held in it.
  struct Sides {
    Vectors newest, seen;
  };
  Sides project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, MixerState* state) {
    if (shape_.crosses) {
      const auto p_bnck = normalised(split_heads(query_projection_(x_bcd), shape_.heads));
      const auto seen = state == nullptr  ? vectors_of(context_bed)
                        : state->holds(0) ? Vectors{state->held(0), state->held(value_slot())}
                                          : extended(vectors_of(context_bed), *state);
      return {{p_bnck, p_bnck}, seen};
    }
    const auto seen = vectors_of(context_bed);
    const auto tokens = x_bcd.size(1), before = context_bed.size(1) - tokens;
    auto newest = seen;  // the same tensors if x is the whole context
    if (!is_end_of(x_bcd, context_bed))
      newest = vectors_of(x_bcd);
    else if (before > 0)
      newest = {seen.p_bnck.narrow(2, before, tokens), seen.value_bnck.narrow(2, before, tokens)};
    return {newest, state == nullptr ? seen : extended(seen, *state)};
  }

  // The rows of p, [n, k, d], in the weight of the projection of the context, or of the queries.
  torch::Tensor rows_nkd(const Linear& projection) const {
    return projection->weight().narrow(0, 0, shape_.width).view({shape_.heads, shape_.head_width(), shape_.width});
  }
  const Linear& query_projection() const { return query_projection_.is_empty() ? projection_ : query_projection_; }

  // Multiplies the initial scores by `factor` if there is no form to scale: by the temperature, else by the length of
  // p. If values are p, the output projection compensates for their new length.
  void scale_scores(double factor) {
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

  // The variance of an entry of p for scale_initial_scores; a gain counts as 1.
  double variance(double of_projection) const { return norm_.is_empty() ? of_projection : 1; }

  // Applies the fixed norm and the temperature to a form: [n, k, k], a diagonal [n, k], or undefined for the identity.
  torch::Tensor finished(torch::Tensor form) const {
    const auto k = static_cast<double>(form.defined() ? form.size(-1) : 0);
    const auto scaled = [&](const torch::Tensor& factor_n) {
      return form * (form.dim() == 3 ? factor_n.view({-1, 1, 1}) : factor_n.unsqueeze(1));
    };
    if (fixed_norm_) form = scaled(std::sqrt(k) / form.flatten(1).norm(2, 1));  // the norm of the identity
    if (!temperature_n_.defined()) return form;
    if (form.defined()) return scaled(temperature_n_);
    return temperature_n_.unsqueeze(1).expand({shape_.heads, shape_.head_width()});
  }

  // `form_operations`: those of F in all heads.
  MixerCost cost_with(const MixerLoad& load, Backend backend, std::int64_t key_width, double form_operations) const {
    const auto matrices = projections() + (shape_.crosses ? 1 : 0) + 1;  // with the output
    return attention_cost(shape_, load, backend,
                          {.rows = matrices * shape_.width,
                           .score_width = key_width,
                           .value_width = shape_.head_width(),
                           .activations = 5 * shape_.width,
                           .form_operations = form_operations});
  }

  bool shares_values() const { return values_ == MixerValues::shared; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(shape_.head_width())); }  // of scores

  MetricVectors vectors_for_kernels(const torch::Tensor& p_bnck, const Vectors& seen) const {
    return {p_bnck, seen.p_bnck, shares_values() ? torch::Tensor() : seen.value_bnck};
  }

  // Attention by the kernels of cuda/ (kernel_choice.h).
  torch::Tensor attend_fused(const torch::Tensor& p_bnck, const Vectors& seen, const torch::Tensor& form, bool distance,
                             const Visibility& visibility, Pass& pass) {
    if (!std::exchange(checked_, true)) require_finite_form(form);
    return fused_metric_attention(
        vectors_for_kernels(p_bnck, seen), form,
        {.distance = distance,
         .causal = visibility.causal,
         .query_segment_bc = visibility.query_segment_bc,
         .key_segment_be = visibility.key_segment_be,
         .scale = scale(),
         .dropout = shape_.dropout,
         .short_backward = short_backward_expected_to_win(p_bnck.scalar_type(), seen.p_bnck.size(2))},
        pass);
  }

  // Self-attention by LibTorch's attention, from the projection on (kernel_choice.h).
  torch::Tensor attend_by_library(const torch::Tensor& x_bcd, const torch::Tensor& form, const Visibility& visibility) {
    LibraryMetricOptions options{.heads = shape_.heads,
                                 .own_values = values_ == MixerValues::own,
                                 .causal = visibility.causal,
                                 .scale = scale()};
    if (!norm_.is_empty()) options.norm_epsilon = HeadNormImpl::epsilon;
    return library_metric_attention(projection_(x_bcd), norm_.is_empty() ? torch::Tensor() : norm_->learned_gain(),
                                    form, options);
  }

  // The parts of a decoder that the projections determine.
  ScoreDecoderParts decoder_parts(WeightPrecision precision) const {
    return {.shape = shape_,
            .projection = LinearDecoder(projection_, precision),
            .output = LinearDecoder(output_, precision),
            .value_begin = values_ == MixerValues::own ? shape_.width : 0,
            .value_slot = value_slot(),
            .key_gain_nk = gain_of(norm_, shape_.heads)};
  }

  MixerShape shape_;
  KernelUse kernels_;
  MixerValues values_;
  bool fixed_norm_;
  Linear projection_;                 // rows: p, then own values
  torch::Tensor temperature_n_;       // undefined: not learned
  Linear query_projection_{nullptr};  // of p_c, if the context is another sequence
  HeadNorm norm_{nullptr};            // qk_norm only: p is normalised per head; with a temperature it has no gain
  Linear output_{nullptr};
  std::optional<ScorePositions> positions_;  // made in the order of registration

 private:
  // The number of projections of the context: p, and own values.
  std::int64_t projections() const { return values_ == MixerValues::own ? 2 : 1; }

  Vectors vectors_of(const torch::Tensor& context_bed) {
    const auto projected = projection_(context_bed);
    const auto part = [&](std::int64_t first) {
      return split_heads(projected.narrow(2, first, shape_.width), shape_.heads);
    };
    const auto projected_bnek = part(0);
    const auto p_bnek = normalised(projected_bnek);
    if (values_ == MixerValues::own) return {p_bnek, part(shape_.width)};
    return {p_bnek, shares_values() ? p_bnek : projected_bnek};
  }

  Vectors extended(const Vectors& newest, MixerState& state) const {
    const auto p_bnek = state.extend(0, newest.p_bnck);
    return {p_bnek, shares_values() ? p_bnek : state.extend(value_slot(), newest.value_bnck)};
  }

  torch::Tensor normalised(const torch::Tensor& p_bnck) { return norm_.is_empty() ? p_bnck : norm_(p_bnck); }
  std::size_t value_slot() const { return shares_values() ? 0 : 1; }

  bool checked_ = false;  // whether require_finite_form was called
};

// r = p W p', or for the full form r = x U x'. Values are p, or a projection of their own. Rotary positions rotate p W
// (or x U) and the other side of the score, never the values.
class Quadratic : public FormMixer {
 public:
  Quadratic(const QuadraticOptions& options, const MixerShape& shape)
      : FormMixer(options, shape, options.key_width(shape)), options_(options) {
    const auto n = shape.heads, k = options.key_width(shape);
    auto spec = score_form_spec;
    spec.hidden_matrices = n;  // each maps p (or x) to the vector that is compared with the other side
    form_ = add_parameter(full() ? "full_form" : "form", {n, k, k}, spec);
    const torch::NoGradGuard no_grad;
    if (!full()) form_.diagonal(0, 1, 2).fill_(1);
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) override {
    if (takes_library(kernels_, x_bcd, context_bed, visibility, state, pass))
      return output_(merge_heads(attend_by_library(x_bcd, form(), visibility)));
    const auto [newest, seen] = project(x_bcd, context_bed, state);
    if (takes_kernels(kernels_, vectors_for_kernels(newest.p_bnck, seen), visibility, pass))
      return output_(merge_heads(attend_fused(newest.p_bnck, seen, form(), /*distance=*/false, visibility, pass)));
    auto left = newest.p_bnck, right = seen.p_bnck;
    if (full()) {
      const auto seen_bed = state != nullptr ? state->extend(1, context_bed) : context_bed;
      left = x_bcd.unsqueeze(1).expand({-1, shape_.heads, -1, -1});
      right = seen_bed.unsqueeze(1).expand({-1, shape_.heads, -1, -1});
    }
    const auto form_nij = form();
    if (pass.wants_scores()) pass.probe->scored({.left_bnci = left, .right_bnej = right, .form_nij = form_nij});
    const auto tokens = right.size(2);
    left = positions_->with_content_bias(left, visibility);
    const auto q_bnck = positions_->rotated(per_head_product(left, form_nij), tokens, visibility);
    const auto k_bnek = positions_->rotated(right.to(q_bnck.scalar_type()), tokens, visibility);
    ScoreMixing mixing{.scale = scale(),
                       .dropout = shape_.dropout,
                       .shaw = positions_->shaw(),
                       .distances = positions_->distance_terms(visibility)};
    if (mixing.distances) mixing.distances->bias_n1k = torch::matmul(mixing.distances->bias_n1k, form_nij);
    return output_(merge_heads(attend(q_bnck, k_bnek, seen.value_bnck, visibility, mixing, options_.backend, pass)));
  }

  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity,
                                        WeightPrecision precision) const override {
    auto parts = decoder_parts(precision);
    parts.key_slot = full() ? 1 : 0;
    parts.from_inputs = full();
    parts.form_nkj = form().detach();
    return make_score_decoder(std::move(parts), batch, capacity);
  }

  std::optional<ScoreForm> score_form() const override {
    if (options_.qk_norm) return std::nullopt;
    if (full())
      return ScoreForm{.left_nrd = torch::eye(shape_.width, form_.options()).expand_as(form_), .right_nrd = form_};
    return ScoreForm{.left_nrd = rows_nkd(query_projection()),
                     .right_nrd = torch::matmul(form(), rows_nkd(projection_))};
  }

  // Var(p W p') = k^2 v^2 s^2 for the projected form and Var(x U x') = d^2 s^2 for the full one, before the 1/sqrt(k),
  // where v is the variance of an entry of p and s the standard deviation of an entry of the form.
  void scale_initial_scores(double projection_variance) override {
    const double root_k = std::sqrt(static_cast<double>(shape_.head_width()));
    const double v = variance(projection_variance);
    if (options_.fixed_norm) {
      form_.div_(root_k);  // the parameter starts with the fixed norm
      scale_scores(options_.score_std / v);
    } else {
      const double unit = full() ? root_k / static_cast<double>(shape_.width) : 1 / (v * root_k);
      form_.mul_(unit * options_.score_std);
    }
  }

  MixerCost cost(const MixerLoad& load) const override {
    const auto side = options_.key_width(shape_);
    return cost_with(load, options_.backend, side, 2 * load.tokens * static_cast<double>(shape_.heads * side * side));
  }

 private:
  bool full() const { return options_.form == QuadraticForm::full; }

  torch::Tensor form() const { return finished(form_); }

  QuadraticOptions options_;
  torch::Tensor form_;  // the parameter of W_nkk or U_ndd
};

// The index in the packed lower triangle of each entry of a dense symmetric k x k matrix, [k * k]. Entry (i, j),
// i >= j, is at i (i + 1) / 2 + j, row-major.
torch::Tensor symmetric_index(std::int64_t k) {
  const auto j = torch::arange(k), i = j.unsqueeze(1), row = torch::maximum(i, j);
  return ((row * (row + 1)).div(2, "floor") + torch::minimum(i, j)).flatten();
}

double softplus_inverse(double y) { return y + std::log(-std::expm1(-y)); }

// -(p_c - p_e) M (p_c - p_e) for every pair, written out: [b, n, c, e].
torch::Tensor distance_scores(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek,
                              const torch::Tensor& metric_nkk) {
  const auto difference = p_bnck.unsqueeze(3) - p_bnek.unsqueeze(2);
  return -torch::einsum("bncek,nkj,bncej->bnce", {difference, metric_nkk, difference});
}

// The form of the published formula, which counts a pair of features twice: the diagonal, and twice the entries below
// it.
torch::Tensor published_form(const torch::Tensor& metric_nkk) {
  return torch::diag_embed(metric_nkk.diagonal(0, 1, 2)) + 2 * metric_nkk.tril(-1);
}

// The published formula, kept for comparison: it counts a pair of tokens and a pair of features twice each. It is
// defined for c >= e and k >= j and mirrored; the diagonals of both are not doubled.
torch::Tensor published_scores(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek,
                               const torch::Tensor& metric_nkk, const torch::Tensor& offset_ce) {
  const auto once_nkk = published_form(metric_nkk);
  const auto later_bnce = torch::einsum("bnck,nkj,bnej->bnce", {p_bnck, once_nkk, p_bnek});
  const auto earlier_bnce = torch::einsum("bnck,njk,bnej->bnce", {p_bnck, once_nkk, p_bnek});
  return torch::where(offset_ce == 0, later_bnce, 2 * torch::where(offset_ce < 0, later_bnce, earlier_bnce));
}

// r = p M p' with M symmetric, or minus the squared distance that M induces. Keys and values are the same projection p,
// so a cache holds only p, unless values have a projection of their own.
class Metric : public FormMixer {
 public:
  Metric(const MetricOptions& options, const MixerShape& shape)
      : FormMixer(options, shape, shape.head_width()), options_(options), k_(shape.head_width()) {
    const torch::NoGradGuard no_grad;
    if (options.constraint == MetricConstraint::diagonal) {
      parameter_ = add_parameter("diagonal_metric", {shape.heads, k_}, score_form_spec);
      parameter_.fill_(is_distance() ? softplus_inverse(1) : 1.0);
    } else if (options.constraint != MetricConstraint::identity) {
      const bool is_metric = options.constraint == MetricConstraint::symmetric;
      parameter_ = add_parameter(is_metric ? "packed_metric" : "packed_factor", {shape.heads, k_ * (k_ + 1) / 2},
                                 score_form_spec);
      if (parameter_.is_meta()) return;
      index_ = symmetric_index(k_);
      parameter_.index_fill_(1, index_.view({k_, k_}).diagonal().contiguous(), 1);
    }
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) override {
    if (takes_library(kernels_, x_bcd, context_bed, visibility, state, pass))
      return output_(merge_heads(attend_by_library(x_bcd, form(), visibility)));
    const auto [newest, seen] = project(x_bcd, context_bed, state);
    if (pass.wants_scores())
      pass.probe->scored({.left_bnci = newest.p_bnck,
                          .right_bnej = seen.p_bnck,
                          .form_nij = dense_nkk(newest.p_bnck.device()).to(newest.p_bnck)});
    if (takes_kernels(kernels_, vectors_for_kernels(newest.p_bnck, seen), visibility, pass))
      return output_(merge_heads(attend_fused(newest.p_bnck, seen, form(), is_distance(), visibility, pass)));
    return output_(merge_heads(attend_seen(newest.p_bnck, seen, visibility, pass)));
  }

  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity,
                                        WeightPrecision precision) const override {
    const torch::NoGradGuard no_grad;
    auto parts = decoder_parts(precision);
    if (is_distance())
      parts.form_nkj = 2 * dense_nkk();
    else if (is_published())
      parts.form_nkj = 2 * published_form(dense_nkk());
    else if (form().defined())
      parts.form_nkj = dense_nkk();
    parts.distance = is_distance();
    parts.newest_share = is_published() ? 0.5F : 1.0F;
    return make_score_decoder(std::move(parts), batch, capacity);
  }

  std::optional<ScoreForm> score_form() const override {
    // The published scores mirror the form at the diagonal of the tokens, so no single form gives them.
    if (is_published() || options_.qk_norm) return std::nullopt;
    const auto projection_nkd = rows_nkd(projection_);
    const auto image_nkd = torch::matmul(dense_nkk().to(projection_nkd.options()), projection_nkd);
    const double twice = is_distance() ? 2 : 1;
    return ScoreForm{.left_nrd = rows_nkd(query_projection()), .right_nrd = twice * image_nkd};
  }

  void scale_initial_scores(double projection_variance) override {
    const double wanted = options_.score_std / score_std_per_norm(variance(projection_variance));
    // If the Frobenius norm of M, before the temperature, is that of the identity for every parameter.
    if (const double root_k = std::sqrt(static_cast<double>(k_));
        fixed_norm_ || options_.constraint == MetricConstraint::identity) {
      scale_to_norm(root_k);  // the parameter starts with the fixed norm
      scale_scores(wanted / root_k);
    } else {
      scale_to_norm(wanted);
    }
  }

  MixerCost cost(const MixerLoad& load) const override {
    const auto of_a_feature = options_.constraint == MetricConstraint::identity   ? 0
                              : options_.constraint == MetricConstraint::diagonal ? 1
                                                                                  : 2 * k_;
    return cost_with(load, options_.backend, k_, load.tokens * static_cast<double>(shape_.width * of_a_feature));
  }

 private:
  bool is_distance() const { return options_.score == MetricScore::distance; }
  bool is_published() const { return options_.score == MetricScore::as_published; }

  // q_bnck = p_bnck M.
  torch::Tensor times_metric(const torch::Tensor& p_bnck) const {
    const auto form = this->form();
    if (!form.defined()) return p_bnck;
    return form.dim() == 3 ? per_head_product(p_bnck, form) : p_bnck * form.unsqueeze(1).to(p_bnck.scalar_type());
  }

  // M in the form that the kernels take: [n, k, k], [n, k] or undefined.
  torch::Tensor form() const { return finished(learned_form()); }

  // M as [n, k, k], on the device of its parameters. The identity has no parameters, and is made on `device`.
  torch::Tensor dense_nkk(torch::Device device = torch::kCPU) const {
    const auto form = this->form();
    if (!form.defined()) return torch::eye(k_, device).repeat({shape_.heads, 1, 1});
    return form.dim() == 3 ? form : torch::diag_embed(form);
  }

  // M without its fixed norm and its temperature. For a distance a diagonal M is never negative.
  torch::Tensor learned_form() const {
    if (options_.constraint == MetricConstraint::identity) return {};
    if (options_.constraint == MetricConstraint::diagonal)
      return is_distance() ? torch::softplus(parameter_) : parameter_;
    // M of a packed parameter is symmetric: the gradient of an off-diagonal number is the sum of those of its two
    // entries.
    if (index_.device() != parameter_.device()) index_ = index_.to(parameter_.device());
    const auto unpacked_nkk = parameter_.index_select(1, index_).unflatten(1, {k_, k_});
    if (options_.constraint == MetricConstraint::symmetric) return unpacked_nkk;
    const auto factor_nkk = unpacked_nkk.tril();
    return torch::bmm(factor_nkk, factor_nkk.transpose(1, 2));
  }

  // Scales a parameter drawn from N(0, 1) so that the Frobenius norm of each head's M has the root mean square `norm`.
  // A diagonal that must be positive becomes a multiple of the identity of that norm. Not for the identity.
  void scale_to_norm(double norm) {
    const auto k = static_cast<double>(k_);
    if (options_.constraint == MetricConstraint::symmetric)
      parameter_.mul_(norm / k);
    else if (options_.constraint == MetricConstraint::psd)  // E |L L^T|^2 for standard normal entries of the triangle L
      parameter_.mul_(std::sqrt(norm / std::sqrt(k * (k + 1) * (4 * k + 5) / 6)));
    else if (options_.constraint == MetricConstraint::diagonal && is_distance())
      parameter_.fill_(softplus_inverse(norm / std::sqrt(k)));
    else if (options_.constraint == MetricConstraint::diagonal)
      parameter_.mul_(norm / std::sqrt(k));
  }

  // Standard deviation of the scores (after 1 / sqrt(k)) where the Frobenius norm of M is 1 and the entries of p are
  // independent, of variance v. Var(p M p') = v^2 |M|^2; Var(p' M p') = 2 v^2 |M|^2 for normal p'.
  double score_std_per_norm(double v) const {
    const auto k = static_cast<double>(k_);
    switch (options_.score) {
      case MetricScore::bilinear:
        return v / std::sqrt(k);
      case MetricScore::distance:  // 2 p M p' - p' M p'
        return std::sqrt(4 + key_term_variance()) * v / std::sqrt(k);
      case MetricScore::as_published:  // twice the form that has each M_ij, i > j, once and doubled
        return 2 * std::sqrt((2 * k - 1) / k) * v / std::sqrt(k);
    }
    return 0;
  }

  // Var(p' M p') if v and the Frobenius norm of M are 1: 2 for normal p'. With qk_norm p' is on a sphere, where the
  // part of M that is a multiple of the identity gives no variance.
  double key_term_variance() const {
    if (norm_.is_empty()) return 2;
    if (options_.constraint != MetricConstraint::psd) return 0;  // starts as a multiple of the identity
    const auto k = static_cast<double>(k_);
    const auto metric_nkk = dense_nkk();
    const auto trace_n = metric_nkk.diagonal(0, 1, 2).sum(1);
    const auto isotropic_n = trace_n.square() / (k * metric_nkk.square().sum({1, 2}));
    return 2 * k / (k + 2) * (1 - isotropic_n.mean().item<double>());
  }

  // Transformer-XL's terms of distances, with M: (p + v) M r_l for the projected encoding r_l of distance l. For a
  // distance score: -(p + v - r_l) M (p + v - r_l), without the term that is constant along a row, unless a probe
  // observes scores. p_bnck already includes u.
  std::optional<DistanceTerms> distance_terms(const torch::Tensor& p_bnck, const Visibility& visibility,
                                              const Pass& pass) {
    auto terms = positions_->distance_terms(visibility);
    if (!terms) return terms;
    if (is_distance() && pass.wants_scores()) {
      const auto from_bnck = p_bnck + terms->bias_n1k;
      terms->row_bnc1 = -(times_metric(from_bnck) * from_bnck).sum(-1, true);
    }
    terms->bias_n1k = query_factor() * times_metric(terms->bias_n1k.unsqueeze(0)).squeeze(0);
    if (is_distance()) {
      const auto image_nlk = times_metric(terms->key_nlk.unsqueeze(0)).squeeze(0);
      terms->term_n1l = -(image_nlk * terms->key_nlk).sum(-1).unsqueeze(1);
    }
    return terms;
  }

  torch::Tensor attend_seen(const torch::Tensor& given_bnck, const Vectors& seen, const Visibility& visibility,
                            Pass& pass) {
    const auto& p_bnek = seen.p_bnck;
    const auto p_bnck = positions_->with_content_bias(given_bnck, visibility);
    const ScoreMixing mixing{.scale = scale(),
                             .dropout = shape_.dropout,
                             .shaw = positions_->shaw(),
                             .distances = distance_terms(p_bnck, visibility, pass)};
    const bool by_formula = options_.backend == Backend::reference || is_published();
    if (by_formula && !positions_->rotates()) {
      const bool has_vectors = mixing.shaw != nullptr || mixing.distances;
      const auto q_bnck = has_vectors ? query_factor() * times_metric(p_bnck) : p_bnck;
      return mix_by_scores(scores(p_bnck, p_bnek, visibility), q_bnck, seen.value_bnck, visibility, mixing, pass);
    }
    if (is_distance()) return composed_distance(p_bnck, seen, visibility, mixing, pass);
    const auto tokens = p_bnek.size(2);
    return attend(positions_->rotated(times_metric(p_bnck), tokens, visibility),
                  positions_->rotated(p_bnek, tokens, visibility), seen.value_bnck, visibility, mixing,
                  options_.backend, pass);
  }

  // The factor of p_c M p_e, the term of the scores that depends on both tokens.
  double query_factor() const { return is_distance() ? 2 : 1; }

  torch::Tensor scores(const torch::Tensor& p_bnck, const torch::Tensor& p_bnek, const Visibility& visibility) const {
    const auto metric_nkk = dense_nkk(p_bnck.device()).to(p_bnck.options());
    switch (options_.score) {
      case MetricScore::distance:
        return distance_scores(p_bnck, p_bnek, metric_nkk);
      case MetricScore::as_published:
        return published_scores(p_bnck, p_bnek, metric_nkk,
                                offset_ce(visibility, p_bnck.size(2), p_bnek.size(2), p_bnck.device()));
      case MetricScore::bilinear:
        break;
    }
    return torch::einsum("bnck,nkj,bnej->bnce", {p_bnck, metric_nkk, p_bnek});
  }

  // The softmax cancels the term that is constant along a row, -p_c M p_c; 2 p_c M p_e - p_e M p_e remains. Below
  // float32 the gradient of M would be lost in that cancellation, so such inputs are widened first. Rotary positions
  // rotate 2 p_c M and p_e.
  torch::Tensor composed_distance(const torch::Tensor& p_bnck, const Vectors& seen, const Visibility& visibility,
                                  const ScoreMixing& mixing, Pass& pass) {
    const auto given = seen.p_bnck.scalar_type();
    const bool narrow = given == torch::kBFloat16 || given == torch::kHalf;
    std::optional<c10::impl::ExcludeDispatchKeyGuard> without_autocast;
    if (narrow) without_autocast.emplace(c10::autocast_dispatch_keyset);
    const auto wide = narrow ? torch::kFloat : given;
    const auto p_e = seen.p_bnck.to(wide);
    const auto v_e = shares_values() ? p_e : seen.value_bnck.to(wide);
    const auto image_e = times_metric(p_e);  // p_e M
    const bool same = p_bnck.is_same(seen.p_bnck);
    const auto p_c = same ? p_e : p_bnck.to(wide);
    const auto image_c = same ? image_e : times_metric(p_c);
    const auto length_bne1 = (image_e * p_e).sum(-1, true);
    const auto tokens = p_e.size(2);
    const auto q = positions_->rotated(2 * image_c, tokens, visibility),
               k = positions_->rotated(p_e, tokens, visibility);
    if (options_.backend == Backend::reference || needs_scores(visibility, mixing, pass)) {
      auto score_bnce = torch::matmul(q, k.transpose(2, 3)) - length_bne1.transpose(2, 3);
      if (pass.wants_scores()) {  // a probe sees the whole score
        score_bnce = score_bnce - (image_c * p_c).sum(-1, true);
        // Rounding may give scores slightly above 0. Not with a temperature, which may be negative.
        if (!positions_->rotates() && !options_.learned_temperature) score_bnce = score_bnce.clamp_max(0);
      }
      return mix_by_scores(score_bnce, q, v_e, visibility, mixing, pass).to(given);
    }
    return attend_with_key_term(q, k, -length_bne1, v_e, visibility, mixing, options_.backend, pass).to(given);
  }

  MetricOptions options_;
  std::int64_t k_;
  torch::Tensor parameter_;      // undefined for the identity
  mutable torch::Tensor index_;  // of a packed parameter: symmetric_index, on the parameter's device
};

}  // namespace

std::shared_ptr<Mixer> QuadraticOptions::make(const MixerShape& shape) const {
  return std::make_shared<Quadratic>(*this, shape);
}

std::shared_ptr<Mixer> MetricOptions::make(const MixerShape& shape) const {
  return std::make_shared<Metric>(*this, shape);
}

}  // namespace metaformer
