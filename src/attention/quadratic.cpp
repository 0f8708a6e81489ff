// Quadratic attention: scores from a general bilinear form. projected: r = p W p'; full: r = x U x'. Values are p.

#include <cmath>
#include <utility>

#include "attention/mixer.h"
#include "attention/mixer_decoder.h"
#include "attention/quadratic_options.h"
#include "attention/score_attention.h"
#include "ops/fused_metric.h"
#include "ops/heads.h"

namespace metaformer {

namespace {

class Quadratic : public Mixer {
 public:
  Quadratic(const QuadraticOptions& options, const MixerShape& shape)
      : options_(options),
        shape_(shape),
        projection_(register_module("projection", Linear(shape.width, shape.width, shape.bias))),
        output_(
            register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)))) {
    const auto k = shape.head_width();
    form_ = full() ? add_parameter("full_form", torch::zeros({shape.heads, shape.width, shape.width}), score_form_spec)
                   : add_parameter("form", torch::eye(k).repeat({shape.heads, 1, 1}), score_form_spec);
  }

  torch::Tensor forward(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                        MixerState* state, Pass& pass) override {
    const auto p_bnck = project(x_bcd);
    auto value_bnek = context_bed.is_same(x_bcd) ? p_bnck : project(context_bed);
    if (state != nullptr) value_bnek = state->extend(0, value_bnek);
    auto left = p_bnck, right = value_bnek;
    if (full()) {
      const auto seen_bed = state != nullptr ? state->extend(1, context_bed) : context_bed;
      left = x_bcd.unsqueeze(1).expand({-1, shape_.heads, -1, -1});
      right = seen_bed.unsqueeze(1).expand({-1, shape_.heads, -1, -1});
    }
    const double scale = 1 / std::sqrt(static_cast<double>(shape_.head_width()));
    if (options_.backend == Backend::fused && state == nullptr) {
      if (!std::exchange(checked_, true)) require_finite_form(form_);
      return output_(merge_heads(fused_metric_attention(
          p_bnck, form_, {.causal = visibility.causal, .segment_bc = visibility.query_segment_bc, .scale = scale})));
    }
    const ScoreMixing mixing{.scale = scale, .dropout = shape_.dropout};
    const auto q = per_head_product(left, form_);
    const auto t_bnck = options_.backend == Backend::reference
                            ? mix_by_scores(torch::matmul(q, right.transpose(2, 3).to(q.scalar_type())), value_bnek,
                                            visibility, mixing, pass)
                            : composed_attention(q, right.to(q.scalar_type()), value_bnek, visibility, mixing, pass);
    return output_(merge_heads(t_bnck));
  }

  std::unique_ptr<MixerDecoder> decoder(std::int64_t batch, std::int64_t capacity) const override {
    return make_score_decoder({.shape = shape_,
                               .projection = LinearDecoder(projection_),
                               .output = LinearDecoder(output_),
                               .key_slot = full() ? 1UL : 0UL,
                               .from_inputs = full(),
                               .form_nkj = form_.detach()},
                              batch, capacity);
  }

  std::optional<ScoreForm> score_form() const override {
    if (full())
      return ScoreForm{.left_nrd = torch::eye(shape_.width, form_.options()).expand_as(form_), .right_nrd = form_};
    const auto projection_nkd = projection_->weight().view({shape_.heads, shape_.head_width(), shape_.width});
    return ScoreForm{.left_nrd = projection_nkd, .right_nrd = torch::matmul(form_, projection_nkd)};
  }

  // Var(p W p') = k^2 v^2 s^2 for the projected form and Var(x U x') = d^2 s^2 for the full one, before the 1/sqrt(k).
  void scale_initial_scores(double projection_variance) override {
    const double root_k = std::sqrt(static_cast<double>(shape_.head_width()));
    const double unit = full() ? root_k / static_cast<double>(shape_.width) : 1 / (projection_variance * root_k);
    form_.mul_(unit * options_.score_std);
  }

 private:
  bool full() const { return options_.form == QuadraticForm::full; }
  torch::Tensor project(const torch::Tensor& x_bcd) { return split_heads(projection_(x_bcd), shape_.heads); }

  QuadraticOptions options_;
  MixerShape shape_;
  Linear projection_, output_;
  torch::Tensor form_;    // W_nkk or U_ndd
  bool checked_ = false;  // the form is finite, as far as fused kernels must know
};

}  // namespace

std::shared_ptr<Mixer> make(const QuadraticOptions& options, const MixerShape& shape) {
  return std::make_shared<Quadratic>(options, shape);
}

}  // namespace metaformer
