// LSH attention (Reformer, Kitaev, Kaiser and Levskaya 2020). Which tokens a token sees depends on all tokens of its
// sequence, those behind it included: it never attends to one behind it, but another future may show it other tokens of
// its past. While text is generated, each new token is computed as the last of the sequence so far.

#include <cmath>

#include "attention/lsh_attention.h"
#include "attention/lsh_options.h"
#include "attention/mixer.h"
#include "ops/heads.h"
#include "ops/random_normal.h"

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
    const LshRule rule{.chunk = options_.chunk,
                       .causal = visibility.causal,
                       .same_bucket = options_.visible == LshVisible::bucket,
                       .correct_duplicates = options_.correct_duplicates,
                       .dropout = shape_.dropout};
    const auto tokens = q_bnek.size(2), newest = x_bcd.size(1);
    const auto bucket_bnre =
        tokens > options_.chunk ? lsh_buckets_bnrc(q_bnek, rotations_nkri(q_bnek.device(), pass)) : torch::Tensor();
    const auto t_bnek = lsh_attention(q_bnek, value_bnek, bucket_bnre, visibility.key_segment_be, rule, pass);
    return merge_heads(t_bnek.narrow(2, tokens - newest, newest));
  }

  Linear* output() override { return &output_; }

  // Var(q . k / |k|) is the variance of a projection.
  void scale_initial_scores(double projection_variance) override {
    projection_->weight().narrow(0, 0, shape_.width).mul_(options_.score_std / std::sqrt(projection_variance));
  }

 private:
  // Training hashes afresh in every pass, everything else always in the same way.
  torch::Tensor rotations_nkri(torch::Device device, Pass& pass) const {
    const auto fixed = [&] {
      return RandomDraw{torch::zeros({1}, torch::TensorOptions().dtype(torch::kLong).device(device)), 0};
    };
    const auto draw = pass.training ? pass.random.next() : fixed();
    return random_normal(
        draw, {shape_.heads, shape_.head_width(), options_.rounds, options_.bucket_count(shape_.context) / 2});
  }

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
