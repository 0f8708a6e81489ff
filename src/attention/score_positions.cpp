#include "attention/score_positions.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/functional.h"
#include "ops/kernel.h"

namespace metaformer {

// Angle of pair l at position c: c base^(-l / pairs).
torch::Tensor rotary_tables_2cr(const RotaryPositionsConfig& config, std::int64_t key_width, std::int64_t tokens) {
  const auto pairs = config.rotated_width(key_width) / 2;
  const auto frequency_r = torch::pow(config.base, -torch::arange(pairs, torch::kDouble) / static_cast<double>(pairs));
  const auto angle_cr = torch::outer(torch::arange(tokens, torch::kDouble), frequency_r);
  return torch::stack({angle_cr.cos(), angle_cr.sin()});
}

torch::Tensor PositionTable::of(std::int64_t tokens, torch::Device device, torch::ScalarType type) {
  const std::lock_guard lock(mutex_);
  if (tokens <= tokens_ && kept_.device() == device && kept_.scalar_type() == type) return kept_;
  const torch::InferenceMode none(false);  // the table may be saved for backward later
  const torch::NoGradGuard no_grad;
  if (tokens > tokens_) tokens_ = std::max(tokens, 2 * tokens_);
  return kept_ = make_(tokens_).to(device, type);
}

RotaryPositions::RotaryPositions(const RotaryPositionsConfig& config, std::int64_t key_width)
    : tables_2cr_([=](std::int64_t tokens) { return rotary_tables_2cr(config, key_width, tokens); }) {}

torch::Tensor RotaryPositions::rotate(const torch::Tensor& x_bnck, std::int64_t tokens, const torch::Tensor& place_1) {
  const auto type = x_bnck.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const auto length = x_bnck.size(2);
  const auto tables_2cr = tables_2cr_.of(tokens, x_bnck.device(), type);
  const auto placed_2cr =
      place_1.defined() ? tables_2cr.index_select(1, place_1) : tables_2cr.narrow(1, tokens - length, length);
  return rotate_pairs(x_bnck, placed_2cr[0], placed_2cr[1]);
}

ScoreBias::ScoreBias(const PositionsConfig& positions, std::int64_t heads, bool causal) : causal_(causal) {
  if (const auto* t5 = std::get_if<T5PositionsConfig>(&positions)) {
    t5_ = *t5;
    table_rn_ = add_parameter("weight", {t5->buckets, heads}, {.init = Init::normal(), .decay = Decay::embeddings});
  } else {
    slope_n11_ = register_buffer("slopes", torch::tensor(alibi_slopes(heads), torch::kFloat).view({-1, 1, 1}));
  }
}

torch::Tensor ScoreBias::forward(const torch::Tensor& offset_ce) const {
  if (!t5_) return -slope_n11_ * offset_ce.abs().to(slope_n11_.scalar_type());
  const auto bucket_ce = t5_bucket_ce(offset_ce, *t5_, causal_);
  return torch::embedding(table_rn_, bucket_ce).permute({2, 0, 1});
}

std::vector<double> alibi_slopes(std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  for (std::int64_t i = 1; i <= power; ++i)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power)));
  for (std::int64_t i = 1; i <= heads - power; ++i)
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(2 * i - 1) / static_cast<double>(2 * power)));
  return slopes;
}

torch::Tensor t5_bucket_ce(const torch::Tensor& offset_ce, const T5PositionsConfig& config, bool causal) {
  const auto buckets = causal ? config.buckets : config.buckets / 2;
  const auto exact = buckets / 2;
  const auto distance_ce = causal ? (-offset_ce).clamp_min(0) : offset_ce.abs();
  // In float32 and in this order, as in T5: at a bucket's edge rounding decides.
  const double span = std::log(static_cast<double>(config.max_distance) / static_cast<double>(exact));
  const auto beyond_ce = (distance_ce.clamp_min(1).to(torch::kFloat) / static_cast<double>(exact)).log() / span *
                         static_cast<double>(buckets - exact);
  const auto far_ce = (exact + beyond_ce.to(torch::kLong)).clamp_max(buckets - 1);
  const auto bucket_ce = torch::where(distance_ce < exact, distance_ce, far_ce);
  return causal ? bucket_ce : bucket_ce + (offset_ce > 0).to(torch::kLong) * buckets;
}

std::shared_ptr<ScoreBias> make_score_bias(const PositionsConfig& positions, std::int64_t heads, bool causal) {
  if (!is<AlibiPositionsConfig>(positions) && !is<T5PositionsConfig>(positions)) return nullptr;
  return std::make_shared<ScoreBias>(positions, heads, causal);
}

ShawImpl::ShawImpl(std::int64_t max_distance, std::int64_t key_width, std::int64_t value_width)
    : max_distance_(max_distance) {
  const auto rows = 2 * max_distance + 1;
  const ParameterSpec spec{.init = Init::normal(), .decay = Decay::embeddings};
  keys_rk_ = add_parameter("keys", {rows, key_width}, spec);
  values_rk_ = add_parameter("values", {rows, value_width}, spec);
}

torch::Tensor ShawImpl::row_ce(const torch::Tensor& offset_ce) const {
  return offset_ce.clamp(-max_distance_, max_distance_) + max_distance_;
}

// Multiplies by the few rows of the table; every pair then takes one of the products. Needs nothing of size c e k.
torch::Tensor ShawImpl::scores(const torch::Tensor& q_bnck, const torch::Tensor& offset_ce) const {
  const auto of_row_bncr = torch::matmul(q_bnck, keys_rk_.to(q_bnck.scalar_type()).t());
  return of_row_bncr.gather(3, row_ce(offset_ce).expand({q_bnck.size(0), q_bnck.size(1), -1, -1}));
}

torch::Tensor ShawImpl::values(const torch::Tensor& weight_bnce, const torch::Tensor& offset_ce) const {
  const auto row = row_ce(offset_ce);
  auto sizes = weight_bnce.sizes().vec();
  sizes[3] = values_rk_.size(0);
  const auto of_row_bncr =
      torch::zeros(sizes, weight_bnce.options()).scatter_add(3, row.expand_as(weight_bnce), weight_bnce);
  return torch::matmul(of_row_bncr, values_rk_.to(weight_bnce.scalar_type()));
}

// A row for each distance from `tokens` - 1 down to 1 - tokens.
static torch::Tensor sinusoids_ld(std::int64_t tokens, std::int64_t width, std::int64_t clamp_length) {
  auto distance_l = torch::arange(tokens - 1, -tokens, -1, torch::kDouble);
  const auto longest = static_cast<double>(clamp_length);
  if (clamp_length > 0) distance_l = distance_l.clamp(-longest, longest);
  const auto frequency = torch::pow(10000.0, -torch::arange(0, width, 2, torch::kDouble) / static_cast<double>(width));
  const auto angle = torch::outer(distance_l, frequency);
  return torch::cat({angle.sin(), angle.cos()}, 1);
}

DistanceTable::DistanceTable(std::int64_t width, std::int64_t clamp_length)
    : table_ld_([=](std::int64_t tokens) { return sinusoids_ld(tokens, width, clamp_length); }) {}

torch::Tensor DistanceTable::rows_ld(std::int64_t queries, std::int64_t keys, bool causal, const torch::Tensor& like) {
  const auto all_ld = table_ld_.of(keys, like.device(), like.scalar_type());
  return all_ld.narrow(0, (all_ld.size(0) + 1) / 2 - keys, causal ? keys : keys + queries - 1);
}

TransformerXlImpl::TransformerXlImpl(const TransformerXlPositionsConfig& config, const MixerShape& shape,
                                     std::int64_t key_width)
    : projection(register_module("projection", Linear(shape.width, shape.heads * key_width, /*bias=*/false))) {
  if (!config.shared_biases) biases = register_module("biases", DistanceBiases(shape.heads, key_width));
}

// y_ij = x_(i, c - 1 - i + j) for j < keys, where x has c rows and at least `keys` columns. An index beyond the end of
// a row reads a number of the next row; its gradient is 0.
static torch::Tensor shifted_by_distance(const torch::Tensor& x_bncl, std::int64_t keys) {
  const auto queries = x_bncl.size(2), columns = x_bncl.size(3);
  const auto forward = [&](Tensors&) {
    const auto x = x_bncl.stride(2) == columns && x_bncl.stride(3) == 1 ? x_bncl : x_bncl.contiguous();
    return x
        .as_strided({x.size(0), x.size(1), queries, keys}, {x.stride(0), x.stride(1), columns - 1, 1},
                    x.storage_offset() + queries - 1)
        .clone(at::MemoryFormat::Contiguous);
  };
  return own_node("the shift of scores by distance", {x_bncl}, forward, [=](const Backward& in) -> Tensors {
    // dx_(i, l) = dy_(i, l + i - (c - 1)), and 0 where there is no such column.
    const auto padded = torch::constant_pad_nd(in.dy[0], {queries - 1, columns - keys});
    return {padded.as_strided({padded.size(0), padded.size(1), queries, columns},
                              {padded.stride(0), padded.stride(1), padded.size(3) + 1, 1})};
  });
}

torch::Tensor distance_scores(const torch::Tensor& q_bnck, const DistanceTerms& terms, std::int64_t keys) {
  auto of_distance_bncl = per_head_product(queries_of_distances(q_bnck, terms), terms.key_nlk.transpose(1, 2));
  if (terms.term_n1l.defined()) of_distance_bncl = of_distance_bncl + terms.term_n1l;
  if (terms.row_bnc1.defined()) of_distance_bncl = of_distance_bncl + terms.row_bnc1;
  return shifted_by_distance(of_distance_bncl, keys);
}

ScorePositions::ScorePositions(torch::nn::Module& owner, const MixerShape& shape, std::int64_t key_width,
                               std::int64_t value_width) {
  if (const auto* rotary = std::get_if<RotaryPositionsConfig>(&shape.positions)) rotary_.emplace(*rotary, key_width);
  if (const auto* shaw = std::get_if<ShawPositionsConfig>(&shape.positions))
    shaw_ = owner.register_module("positions", Shaw(shaw->max_distance, key_width, value_width));
  if (const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions))
    transformer_xl_ = owner.register_module("positions", TransformerXl(*xl, shape, key_width));
}

std::pair<torch::Tensor, torch::Tensor> ScorePositions::biases_nk(const Visibility& visibility) const {
  const auto& own = transformer_xl_->biases;
  if (own.is_empty()) return {visibility.content_bias_nk, visibility.distance_bias_nk};
  return {own->content_nk, own->distance_nk};
}

torch::Tensor ScorePositions::with_content_bias(const torch::Tensor& q_bnck, const Visibility& visibility) const {
  if (!knows_distances(visibility)) return q_bnck;
  return q_bnck + biases_nk(visibility).first.unsqueeze(1).to(q_bnck.scalar_type());
}

std::optional<DistanceTerms> ScorePositions::distance_terms(const Visibility& visibility) {
  if (!knows_distances(visibility)) return std::nullopt;
  const auto [content_nk, distance_nk] = biases_nk(visibility);
  auto& projection = transformer_xl_->projection;
  return DistanceTerms{
      .bias_n1k = (distance_nk - content_nk).unsqueeze(1),
      .key_nlk = projection(visibility.distance_ld).unflatten(1, {distance_nk.size(0), -1}).transpose(0, 1)};
}

SharedPositions::SharedPositions(torch::nn::Module& owner, const MixerShape& shape, std::int64_t key_width, bool causal)
    : dropout_(shape.dropout), bias_(make_score_bias(shape.positions, shape.heads, causal)) {
  if (bias_ != nullptr) owner.register_module("score_bias", bias_);
  const auto* xl = std::get_if<TransformerXlPositionsConfig>(&shape.positions);
  if (xl == nullptr) return;
  distances_.emplace(shape.width, xl->clamp_length);
  if (xl->shared_biases)
    distance_biases_ = owner.register_module("distance_biases", DistanceBiases(shape.heads, key_width));
}

void SharedPositions::add_to(Visibility& visibility, std::int64_t queries, std::int64_t keys, const torch::Tensor& like,
                             Pass& pass) {
  if (bias_ != nullptr) visibility.score_bias_nce = bias_->forward(offset_ce(visibility, queries, keys, like.device()));
  if (!distances_) return;
  const bool not_later = visibility.causal && !pass.wants_scores();  // a probe also observes masked scores
  auto rows_ld = distances_->rows_ld(queries, keys, not_later, like);
  if (visibility.place_1.defined()) {  // one row for each key; those of later keys, which are masked, are arbitrary
    const auto offset_e = offset_ce(visibility, queries, keys, like.device()).squeeze(0);
    rows_ld = rows_ld.index_select(0, (offset_e + (keys - 1)).clamp_max(keys - 1));
  }
  visibility.distance_ld = dropout_of_shared(rows_ld, dropout_, pass);
  if (distance_biases_.is_empty()) return;
  visibility.content_bias_nk = distance_biases_->content_nk;
  visibility.distance_bias_nk = distance_biases_->distance_nk;
}

}  // namespace metaformer
