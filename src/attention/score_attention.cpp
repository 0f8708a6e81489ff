#include "attention/score_attention.h"

#include <ATen/autocast_mode.h>

#include <cmath>
#include <limits>

#include "attention/kernel_choice.h"
#include "cpu/attention.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/fused_metric.h"
#include "ops/linear.h"

namespace metaformer {

QueryKeyValue::QueryKeyValue(torch::nn::Module& owner, const MixerShape& shape, std::int64_t key_heads,
                             std::int64_t value_heads, std::int64_t value_width)
    : shape_(shape), key_heads_(key_heads), value_heads_(value_heads), value_width_(value_width) {
  // If keys have fewer rows than queries, the weight counts as matrices of as many rows as the keys have.
  const auto matrices = (query_rows() + value_rows()) / key_rows() + 1;
  projection_ = owner.register_module("query_key_value", Linear(shape.width, query_rows() + key_rows() + value_rows(),
                                                                shape.bias, Init::normal(), matrices));
}

void QueryKeyValue::add_norms(torch::nn::Module& owner, bool learned_gain) {
  query_norm_ = owner.register_module("query_norm", HeadNorm(shape_.head_width(), learned_gain));
  key_norm_ = owner.register_module("key_norm", HeadNorm(shape_.head_width(), learned_gain));
}

QueryKeyValue::Vectors QueryKeyValue::project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed,
                                              MixerState* state, std::int64_t window) {
  const bool is_held = shape_.crosses && state != nullptr && state->holds(0);
  auto [q_bnck, k_bnek, value_bnek] =
      is_held ? Vectors{queries(x_bcd), state->held(0), state->held(1)} : project(x_bcd, context_bed);
  if (!query_norm_.is_empty()) q_bnck = query_norm_(q_bnck);
  if (is_held) return {q_bnck, k_bnek, value_bnek};
  if (!key_norm_.is_empty()) k_bnek = key_norm_(k_bnek);
  if (state == nullptr) return {q_bnck, k_bnek, value_bnek};
  return {q_bnck, state->extend(0, k_bnek, window), state->extend(1, value_bnek, window)};
}

QueryKeyValue::Vectors QueryKeyValue::project(const torch::Tensor& x_bcd, const torch::Tensor& context_bed) {
  if (context_bed.is_same(x_bcd)) {
    const auto parts = projection_(x_bcd).split_with_sizes({query_rows(), key_rows(), value_rows()}, 2);
    return {split_heads(parts[0], shape_.heads), split_heads(parts[1], key_heads_),
            split_heads(parts[2], value_heads_)};
  }
  const auto key_value = part(context_bed, query_rows(), key_rows() + value_rows());
  const auto parts = key_value.split_with_sizes({key_rows(), value_rows()}, 2);
  return {queries(x_bcd), split_heads(parts[0], key_heads_), split_heads(parts[1], value_heads_)};
}

torch::Tensor QueryKeyValue::queries(const torch::Tensor& x_bcd) const {
  return split_heads(part(x_bcd, 0, query_rows()), shape_.heads);
}

torch::Tensor QueryKeyValue::part(const torch::Tensor& x_bcd, std::int64_t first, std::int64_t rows) const {
  const auto& bias = projection_->bias();
  return linear_product(x_bcd, projection_->weight().narrow(0, first, rows),
                        bias.defined() ? bias.narrow(0, first, rows) : bias);
}

ScoreForm QueryKeyValue::score_form() const {
  const auto rows = [&](std::int64_t first, std::int64_t heads) {
    return projection_->weight()
        .narrow(0, first, heads * shape_.head_width())
        .view({heads, shape_.head_width(), shape_.width});
  };
  return {.left_nrd = rows(0, shape_.heads),
          .right_nrd = rows(query_rows(), key_heads_).repeat_interleave(shape_.heads / key_heads_, 0)};
}

// The sigmoid weights of scaled scores, which are -infinity where nothing is seen: sigmoid(s - log n) with n visible
// tokens.
static torch::Tensor sigmoid_weights(const torch::Tensor& scaled_bnce, const torch::Tensor& visible_bce) {
  if (!visible_bce.defined()) return torch::sigmoid(scaled_bnce - std::log(static_cast<double>(scaled_bnce.size(3))));
  const auto count_b1c1 = visible_bce.sum(2, true).clamp_min(1).unsqueeze(1);
  return torch::sigmoid(scaled_bnce - count_b1c1.to(scaled_bnce.scalar_type()).log());
}

// The softmax over each row and its sink, without the sink's weight.
static torch::Tensor softmax_beside(const torch::Tensor& sink_n, const torch::Tensor& scaled_bnce) {
  const auto keys = scaled_bnce.size(3);
  const auto sink_bnc1 =
      sink_n.to(scaled_bnce.scalar_type()).view({1, -1, 1, 1}).expand_as(scaled_bnce.narrow(3, 0, 1));
  return torch::softmax(torch::cat({scaled_bnce, sink_bnc1}, 3), -1).narrow(3, 0, keys);
}

torch::Tensor mix_by_scores(const torch::Tensor& score_bnce, const torch::Tensor& q_bnck,
                            const torch::Tensor& value_bnek, const Visibility& visibility, const ScoreMixing& mixing,
                            Pass& pass) {
  const auto visible = visible_bce(visibility, score_bnce.size(2), score_bnce.size(3), score_bnce.device());
  auto scaled = score_bnce * mixing.scale;
  const auto offset = mixing.shaw == nullptr
                          ? torch::Tensor()
                          : offset_ce(visibility, score_bnce.size(2), score_bnce.size(3), score_bnce.device());
  if (mixing.shaw != nullptr) scaled = scaled + (*mixing.shaw)->scores(q_bnck, offset) * mixing.scale;
  if (mixing.distances) scaled = scaled + distance_scores(q_bnck, *mixing.distances, score_bnce.size(3)) * mixing.scale;
  if (visibility.score_bias_nce.defined()) scaled = scaled + visibility.score_bias_nce;
  const auto observed = pass.wants_scores() ? scaled : torch::Tensor();
  // Autocast would do the same inside the softmax, but then CUDA has no backward pass for it in bf16.
  if (scaled.element_size() < 4 && at::autocast::is_autocast_enabled(scaled.device().type()))
    scaled = scaled.to(torch::kFloat);
  if (visible.defined())
    scaled = scaled.masked_fill(visible.unsqueeze(1).logical_not(), -std::numeric_limits<double>::infinity());
  torch::Tensor weight_bnce;
  if (mixing.weights == AttentionWeights::sigmoid)
    weight_bnce = sigmoid_weights(scaled, visible);
  else if (mixing.sink_n.defined())
    weight_bnce = softmax_beside(mixing.sink_n, scaled);
  else  // softmax of a row of -inf is NaN; such a row has nothing to mix
    weight_bnce = visible.defined() ? torch::_safe_softmax(scaled, -1) : torch::softmax(scaled, -1);
  if (observed.defined()) pass.probe->attended(observed, weight_bnce, visible);
  weight_bnce = dropout_of_weights(weight_bnce, mixing.dropout, pass);
  weight_bnce = weight_bnce.to(value_bnek.scalar_type());
  auto t_bnck = torch::matmul(weight_bnce, with_heads(value_bnek, weight_bnce.size(1)));
  return mixing.shaw != nullptr ? t_bnck + (*mixing.shaw)->values(weight_bnce, offset) : t_bnck;
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

// LibTorch's attention with a sink. One more key in front has the value 0, and its score is the sink by one more
// feature: q' = [q, 1], k' = [0, sink / scale] for this key and [k, 0] for the others. One more query in front, whose
// result is dropped, preserves the row order. On a GPU zeros fill the features up to a multiple of 8, for which
// LibTorch has fused attention.
static torch::Tensor attend_with_sink(const torch::Tensor& q_bnck, const torch::Tensor& k_bnek,
                                      const torch::Tensor& value_bnek, const torch::Tensor& sink_n,
                                      std::optional<torch::Tensor> mask, bool by_row_order, double scale) {
  const auto width = q_bnck.size(3) + 1, zeros = q_bnck.is_cuda() ? (width + 7) / 8 * 8 - width : 0;
  const auto sink_n11 = (sink_n / scale).to(k_bnek.scalar_type()).view({-1, 1, 1});
  const auto sink_bn1k = torch::constant_pad_nd(sink_n11, {width - 1, 0}).expand({k_bnek.size(0), -1, -1, -1});
  const auto one_bnc1 = torch::ones_like(q_bnck.narrow(3, 0, 1));
  const auto first = by_row_order ? 1 : 0;
  const auto wider_q = torch::constant_pad_nd(torch::cat({q_bnck, one_bnc1}, 3), {0, zeros, first, 0});
  const auto wider_k =
      torch::constant_pad_nd(torch::cat({sink_bn1k, torch::constant_pad_nd(k_bnek, {0, 1})}, 2), {0, zeros});
  const auto wider_value = torch::constant_pad_nd(value_bnek, {0, 1 + zeros, 1, 0});
  if (mask) mask = torch::constant_pad_nd(*mask, {1, 0}, 1);
  const auto t =
      at::scaled_dot_product_attention(wider_q, wider_k, wider_value, mask, /*dropout_p=*/0, by_row_order, scale);
  return t.narrow(2, first, q_bnck.size(2)).narrow(3, 0, value_bnek.size(3));
}

torch::Tensor attend(const torch::Tensor& q_bnck, const torch::Tensor& few_k_bnek, const torch::Tensor& few_value_bnek,
                     const Visibility& visibility, const ScoreMixing& mixing, Backend backend, Pass& pass) {
  const bool takes_kernel = can_take_kernel(visibility, mixing, backend, pass);
  if (takes_kernel && can_attend_on_host(q_bnck, few_k_bnek, few_value_bnek)) {
    HostDistances distances;
    if (mixing.distances)
      distances = {queries_of_distances(q_bnck, *mixing.distances), mixing.distances->key_nlk.to(q_bnck.scalar_type())};
    return host_attention(q_bnck, few_k_bnek, few_value_bnek, host_options(visibility, mixing), pass, distances,
                          mixing.sink_n);
  }
  const auto k_bnek = with_heads(few_k_bnek, q_bnck.size(1)), value_bnek = with_heads(few_value_bnek, q_bnck.size(1));
  const auto by_scores = [&] {
    return mix_by_scores(torch::matmul(q_bnck, k_bnek.transpose(2, 3)), q_bnck, value_bnek, visibility, mixing, pass);
  };
  if (!takes_kernel) return by_scores();
  const bool drops = pass.training && mixing.dropout > 0;
  const bool has_usual_shape = !mixing.distances && !mixing.sink_n.defined() && value_bnek.size(3) == q_bnck.size(3);
  if (const MetricVectors vectors{q_bnck, k_bnek, value_bnek};
      backend == Backend::automatic && has_usual_shape && take_scaled_dot_product(vectors, visibility, drops))
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
  if (mixing.sink_n.defined())
    return attend_with_sink(q_bnck, k_bnek, value_bnek, mixing.sink_n, mask, by_row_order, mixing.scale);
  return at::scaled_dot_product_attention(q_bnck, k_bnek, value_bnek, mask, /*dropout_p=*/0, by_row_order,
                                          mixing.scale);
}

// q' = [q, 1], k' = [k, term], v' = [v, 0]. The new feature of b of distances is 0, so that it is 1 in q + b. On a GPU
// zeros fill the features up to a multiple of 8, for which LibTorch has fused attention.
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
    return host_attention(projected_bcd, heads, host_options(visibility, mixing), pass, mixing.sink_n);
  const auto [q_bnck, k_bnck, value_bnck] = thirds_bnck(projected_bcd, heads);
  return merge_heads(attend(q_bnck, k_bnck, value_bnck, visibility, mixing, backend, pass));
}

bool need_pairs(const PositionsConfig& positions, std::int64_t context) {
  if (is<TransformerXlPositionsConfig>(positions)) return context > longest_host_attention;
  return act_on_scores(positions) && !is<RotaryPositionsConfig>(positions);
}

MixerCost attention_cost(const MixerShape& shape, const MixerLoad& load, Backend backend, const AttentionWork& work) {
  const auto d = shape.width, n = shape.heads;
  const auto width = static_cast<double>(d), rows = static_cast<double>(work.rows);
  const auto pair_width = static_cast<double>(n * (work.score_width + work.value_width));
  const bool keeps_pairs =
      work.keeps_pairs || backend == Backend::reference || need_pairs(shape.positions, load.context);
  const bool compares_distances = is<TransformerXlPositionsConfig>(shape.positions);
  return {.operations = 2 * rows * load.tokens * width + work.form_operations + 2 * load.pairs * pair_width,
          // The reference keeps scores, weights, mask and dropped weights of all pairs.
          .activations = work.activations + (compares_distances ? 2 * d : 0) + (keeps_pairs ? 4 * n * load.context : 0),
          .keeps_pairs = keeps_pairs};
}

}  // namespace metaformer
