#include <cmath>

#include "attention/form_mixer.h"
#include "attention/mixers.h"
#include "attention/score_attention.h"
#include "ops/attention.h"

namespace metaformer {

// Quadratic attention: scores from a general bilinear form. projected: r = p W p'; full: r = x U x'. Values are p, or a
// projection of their own. Rotary positions turn p W (or x U) and the other side of the score, never the values.

namespace {

class Quadratic : public FormMixer {
 public:
  Quadratic(const QuadraticOptions& options, const MixerShape& shape)
      : FormMixer(options, shape, options.key_width(shape)), options_(options) {
    const auto n = shape.heads, k = options.key_width(shape);
    auto spec = score_form_spec;
    spec.hidden_matrices = n;  // each maps p (or x) to what the other side of the score is compared with
    form_ = add_parameter(full() ? "full_form" : "form", {n, k, k}, spec);
    const torch::NoGradGuard no_grad;
    if (!full()) form_.diagonal(0, 1, 2).fill_(1);
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) override {
    const auto [newest, seen] = project(x_bcd, context_bed, state);
    if (takes_kernels(kernels_, newest.p_bnck, seen.p_bnck, visibility, pass))
      return output_(
          merge_heads(attend_fused(newest.p_bnck, seen.p_bnck, form(), /*distance=*/false, visibility, pass)));
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
    const auto q_bnck = positions_->rotated(per_head_product(left, form_nij), tokens);
    const auto k_bnek = positions_->rotated(right.to(q_bnck.scalar_type()), tokens);
    ScoreMixing mixing{.scale = scale(),
                       .dropout = shape_.dropout,
                       .shaw = positions_->shaw(),
                       .distances = positions_->distance_terms(visibility)};
    if (mixing.distances) mixing.distances->bias_n1k = torch::matmul(mixing.distances->bias_n1k, form_nij);
    return output_(merge_heads(attend(q_bnck, k_bnek, seen.value_bnck, visibility, mixing, options_.backend, pass)));
  }

  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity) const override {
    auto parts = decoder_parts();
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

  // Var(p W p') = k^2 v^2 s^2 for the projected form and Var(x U x') = d^2 s^2 for the full one, before the 1/sqrt(k).
  void scale_initial_scores(double projection_variance) override {
    const double root_k = std::sqrt(static_cast<double>(shape_.head_width()));
    const double v = variance(projection_variance);
    if (options_.fixed_norm) {
      form_.div_(root_k);  // the parameter starts as what is made of it
      scale_scores(options_.score_std / v);
    } else {
      const double unit = full() ? root_k / static_cast<double>(shape_.width) : 1 / (v * root_k);
      form_.mul_(unit * options_.score_std);
    }
  }

 private:
  bool full() const { return options_.form == QuadraticForm::full; }

  // U, or W with its fixed norm and its temperature.
  torch::Tensor form() const {
    const auto form = options_.fixed_norm ? with_identity_norm(form_) : form_;
    return options_.learned_temperature ? scaled_forms(form, temperature_n_) : form;
  }

  QuadraticOptions options_;
  torch::Tensor form_;  // the parameter of W_nkk or U_ndd
};

}  // namespace

template <>
std::shared_ptr<Mixer> make(const QuadraticOptions& options, const MixerShape& shape) {
  return std::make_shared<Quadratic>(options, shape);
}

}  // namespace metaformer
