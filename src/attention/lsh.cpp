// LSH attention (Reformer, Kitaev, Kaiser and Levskaya 2020). Which tokens a token sees depends on all tokens of its
// sequence, those behind it included: it never attends to one behind it, but another future may show it other tokens of
// its past. While text is generated, each new token is computed as the last of the sequence so far.

#include <cmath>

#include "attention/lsh_attention.h"
#include "attention/lsh_options.h"
#include "attention/mixer.h"
#include "ops/heads.h"

namespace metaformer {

namespace {

class Lsh : public Mixer {
 public:
  Lsh(const LshOptions& options, const MixerShape& shape)
      : options_(options),
        shape_(shape),
        projection_(register_module("projection", Linear(shape.width, 2 * shape.width, shape.bias, Init::normal(),
                                                         /*hidden_matrices=*/2))),
        output_(
            register_module("output", Linear(shape.width, shape.width, shape.bias, Init::normal(shape.output_std)))) {}

  torch::Tensor mix(const torch::Tensor& x_bcd, const torch::Tensor& context_bed, const Visibility& visibility,
                    MixerState* state, Pass& pass) override {
    TORCH_CHECK(context_bed.is_same(x_bcd), "LSH attention has one projection for queries and keys: it cannot cross");
    const auto halves = projection_(x_bcd).chunk(2, 2);
    auto q_bnek = split_heads(halves[0], shape_.heads), value_bnek = split_heads(halves[1], shape_.heads);
    if (state != nullptr) {
      q_bnek = state->extend(0, q_bnek);
      value_bnek = state->extend(1, value_bnek);
    }
    const auto tokens = q_bnek.size(2), newest = x_bcd.size(1);
    const auto t_bnek = hash_and_attend(q_bnek, value_bnek, options_, shape_.context, shape_.dropout, visibility, pass);
    return merge_heads(t_bnek.narrow(2, tokens - newest, newest));
  }

  Linear* output() override { return &output_; }

  // Var(q . k / |k|) is the variance of a projection.
  void scale_initial_scores(double projection_variance) override {
    projection_->weight().narrow(0, 0, shape_.width).mul_(options_.score_std / std::sqrt(projection_variance));
  }

 private:
  LshOptions options_;
  MixerShape shape_;
  Linear projection_;  // rows: queries that are keys, too, then values
  Linear output_;
};

}  // namespace

std::shared_ptr<Mixer> make(const LshOptions& options, const MixerShape& shape) {
  return std::make_shared<Lsh>(options, shape);
}

}  // namespace metaformer
