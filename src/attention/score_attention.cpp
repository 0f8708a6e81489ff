#include "attention/score_attention.h"

#include <ATen/autocast_mode.h>

#include <limits>

#include "attention/kernel_choice.h"
#include "cpu/attention.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/fused_metric.h"

namespace metaformer {

torch::Tensor mix_by_scores(const torch::Tensor& score_bnce, const torch::Tensor& q_bnck,
                            const torch::Tensor& value_bnek, const Visibility& visibility, const ScoreMixing& mixing,
                            Pass& pass) {
  const auto visible = visible_bce(visibility, score_bnce.size(2), score_bnce.size(3), score_bnce.device());
  auto scaled = score_bnce * mixing.scale;
  if (mixing.shaw != nullptr) scaled = scaled + (*mixing.shaw)->scores(q_bnck, score_bnce.size(3)) * mixing.scale;
  if (mixing.distances) scaled = scaled + distance_scores(q_bnck, *mixing.distances, score_bnce.size(3)) * mixing.scale;
  if (visibility.score_bias_nce.defined()) scaled = scaled + visibility.score_bias_nce;
  const auto observed = pass.wants_scores() ? scaled : torch::Tensor();
  // Inside the softmax autocast would do the same, and CUDA then has no backward pass of it in bf16.
  if (scaled.element_size() < 4 && at::autocast::is_autocast_enabled(scaled.device().type()))
    scaled = scaled.to(torch::kFloat);
  torch::Tensor weight_bnce;
  if (visible.defined()) {
    const auto visible_bnce = visible.unsqueeze(1);
    scaled = scaled.masked_fill(visible_bnce.logical_not(), -std::numeric_limits<double>::infinity());
    // softmax of a row of -inf is NaN; such a row has nothing to mix.
    weight_bnce = torch::_safe_softmax(scaled, -1);
  } else {
    weight_bnce = torch::softmax(scaled, -1);
  }
  if (observed.defined()) pass.probe->attended(observed, weight_bnce, visible);
  weight_bnce = dropout_of_weights(weight_bnce, mixing.dropout, pass);
  weight_bnce = weight_bnce.to(value_bnek.scalar_type());
  auto t_bnck = torch::matmul(weight_bnce, value_bnek);
  return mixing.shaw != nullptr ? t_bnck + (*mixing.shaw)->values(weight_bnce) : t_bnck;
}

namespace {

bool can_take_kernel(const Visibility& visibility, const ScoreMixing& mixing, Backend backend, const Pass& pass) {
  return backend != Backend::reference && !needs_scores(visibility, mixing, pass);
}

HostAttentionOptions host_options(const Visibility& visibility, const ScoreMixing& mixing) {
  return {.causal = visibility.causal,
          .window = visibility.window,
          .query_segment_bc = visibility.query_segment_bc,
          .key_segment_be = visibility.key_segment_be,
          .scale = mixing.scale,
          .dropout = mixing.dropout};
}

}  // namespace

torch::Tensor attend(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek, const torch::Tensor& value_bnek,
                     const Visibility& visibility, const ScoreMixing& mixing, Backend backend, Pass& pass) {
  const auto by_scores = [&] {
    return mix_by_scores(torch::matmul(q_bnck, k_bnek.transpose(2, 3)), q_bnck, value_bnek, visibility, mixing, pass);
  };
  if (!can_take_kernel(visibility, mixing, backend, pass)) return by_scores();
  if (can_attend_on_host(q_bnck, k_bnek, value_bnek)) {
    HostDistances distances;
    if (mixing.distances)
      distances = {queries_of_distances(q_bnck, *mixing.distances), mixing.distances->key_nlk.to(q_bnck.scalar_type())};
    return host_attention(q_bnck, k_bnek, value_bnek, host_options(visibility, mixing), pass, distances);
  }
  const bool drops = pass.training && mixing.dropout > 0;
  if (const MetricVectors vectors{q_bnck, k_bnek, value_bnek};
      backend == Backend::automatic && !mixing.distances && take_scaled_dot_product(vectors, visibility, drops))
    return fused_metric_attention(vectors, /*metric=*/{},
                                  {.causal = visibility.causal,
                                   .query_segment_bc = visibility.query_segment_bc,
                                   .key_segment_be = visibility.key_segment_be,
                                   .scale = mixing.scale,
                                   .dropout = mixing.dropout},
                                  pass);
  if (mixing.distances || drops) return by_scores();
  const auto queries = q_bnck.size(2), keys = k_bnek.size(2);
  const bool by_row_order =
      visibility.causal && visibility.window == 0 && !visibility.has_segments() && queries == keys;
  std::optional<torch::Tensor> mask;
  if (!by_row_order) {
    if (const auto visible = visible_bce(visibility, queries, keys, q_bnck.device()); visible.defined())
      mask = visible.unsqueeze(1);
  }
  return at::scaled_dot_product_attention(q_bnck, k_bnek, value_bnek, mask, /*dropout_p=*/0, by_row_order,
                                          mixing.scale);
}

// q' = [q, 1], k' = [k, term], v' = [v, 0]; what is 0 in b of distances is 1 in q + b. With zeros behind them up to a
// multiple of 8 on a GPU, for which the library has fused attention.
torch::Tensor attend_with_key_term(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek,
                                   const torch::Tensor& term_bne1, const torch::Tensor& value_bnek,
                                   const Visibility& visibility, const ScoreMixing& mixing, Backend backend,
                                   Pass& pass) {
  const auto width = q_bnck.size(3) + 1, zeros = q_bnck.is_cuda() ? (width + 7) / 8 * 8 - width : 0;
  const auto with_feature = [&](const torch::Tensor& x, const torch::Tensor& feature) {
    const auto wider = torch::cat({x, feature}, -1);
    return zeros == 0 ? wider : torch::constant_pad_nd(wider, {0, zeros});
  };
  auto wider_mixing = mixing;
  if (auto& distances = wider_mixing.distances) {
    const auto& term_n1l = distances->term_n1l;
    const auto no_term_n1k = torch::zeros_like(distances->bias_n1k.narrow(2, 0, 1));
    distances = DistanceTerms{.bias_n1k = with_feature(distances->bias_n1k, no_term_n1k),
                              .key_nlk = with_feature(distances->key_nlk, term_n1l.transpose(1, 2))};
  }
  const auto t = attend(with_feature(q_bnck, torch::ones_like(q_bnck.narrow(3, 0, 1))), with_feature(k_bnek, term_bne1),
                        torch::constant_pad_nd(value_bnek, {0, 1 + zeros}), visibility, wider_mixing, backend, pass);
  return t.narrow(3, 0, value_bnek.size(3));
}

torch::Tensor attend_projection(const torch::Tensor& projected_bcd, std::int64_t heads, const Visibility& visibility,
                                const ScoreMixing& mixing, Backend backend, Pass& pass) {
  if (can_take_kernel(visibility, mixing, backend, pass) && can_attend_on_host(projected_bcd))
    return host_attention(projected_bcd, heads, host_options(visibility, mixing), pass);
  const auto [q_bnck, k_bnck, value_bnck] = thirds_bnck(projected_bcd, heads);
  return merge_heads(attend(q_bnck, k_bnck, value_bnck, visibility, mixing, backend, pass));
}

bool need_pairs(const PositionsConfig& positions, std::int64_t context) {
  if (is<TransformerXlPositionsConfig>(positions)) return context > longest_host_attention;
  return act_on_scores(positions) && !is<RotaryPositionsConfig>(positions);
}

MixerCost attention_cost(const MixerShape& shape, const MixerLoad& load, Backend backend, std::int64_t projections,
                         std::int64_t score_width, double form_operations) {
  const auto d = shape.width, n = shape.heads;
  const auto width = static_cast<double>(d), pair_width = static_cast<double>(n * (score_width + shape.head_width()));
  const bool keeps_pairs = backend == Backend::reference || need_pairs(shape.positions, load.context);
  const bool compares_distances = is<TransformerXlPositionsConfig>(shape.positions);
  return {.operations = 2 * static_cast<double>(projections) * load.tokens * width * width + form_operations +
                        2 * load.pairs * pair_width,
          // The reference keeps scores, weights, mask and dropped weights of all pairs.
          .activations = (compares_distances ? 7 : 5) * d + (keeps_pairs ? 4 * n * load.context : 0),
          .keeps_pairs = keeps_pairs};
}

}  // namespace metaformer
