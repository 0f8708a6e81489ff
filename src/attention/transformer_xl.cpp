#include "attention/transformer_xl.h"

#include <algorithm>
#include <cmath>

#include "ops/first_order.h"
#include "ops/heads.h"

namespace metaformer {

namespace {

// From distance `tokens` - 1 down to 1 - tokens.
torch::Tensor sinusoids_ld(std::int64_t tokens, std::int64_t width, std::int64_t clamp_length) {
  auto distance_l = torch::arange(tokens - 1, -tokens, -1, torch::kDouble);
  const auto longest = static_cast<double>(clamp_length);
  if (clamp_length > 0) distance_l = distance_l.clamp(-longest, longest);
  const auto frequency = torch::pow(10000.0, -torch::arange(0, width, 2, torch::kDouble) / static_cast<double>(width));
  const auto angle = torch::outer(distance_l, frequency);
  return torch::cat({angle.sin(), angle.cos()}, 1);
}

class Shift : public torch::autograd::Function<Shift> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x_bncl,
                               std::int64_t keys) {
    const auto queries = x_bncl.size(2), columns = x_bncl.size(3);
    context->saved_data["columns"] = columns;
    const auto x = x_bncl.stride(2) == columns && x_bncl.stride(3) == 1 ? x_bncl : x_bncl.contiguous();
    return x
        .as_strided({x.size(0), x.size(1), queries, keys}, {x.stride(0), x.stride(1), columns - 1, 1},
                    x.storage_offset() + queries - 1)
        .clone(at::MemoryFormat::Contiguous);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    require_first_order("the shift of scores by distance");
    const auto& dy_bnce = gradients.front();
    const auto queries = dy_bnce.size(2), columns = context->saved_data["columns"].toInt();
    // dx_(i, l) = dy_(i, l + i - (c - 1)), and 0 where there is no such column.
    const auto padded = torch::constant_pad_nd(dy_bnce, {queries - 1, columns - dy_bnce.size(3)});
    const auto dx = padded.as_strided({dy_bnce.size(0), dy_bnce.size(1), queries, columns},
                                      {padded.stride(0), padded.stride(1), padded.size(3) + 1, 1});
    return {dx, torch::Tensor()};
  }
};

}  // namespace

torch::Tensor DistanceTable::rows_ld(std::int64_t queries, std::int64_t keys, bool causal, const torch::Tensor& like) {
  const std::lock_guard lock(mutex_);
  const auto holds = [&] { return kept_ld_.defined() ? (kept_ld_.size(0) + 1) / 2 : 0; };
  if (holds() < keys || kept_ld_.device() != like.device() || kept_ld_.scalar_type() != like.scalar_type()) {
    const auto tokens = std::max(keys, 2 * holds());
    kept_ld_ = sinusoids_ld(tokens, width_, clamp_length_).to(like.device(), like.scalar_type());
  }
  return kept_ld_.narrow(0, holds() - keys, causal ? keys : keys + queries - 1);
}

DistanceBiasesImpl::DistanceBiasesImpl(std::int64_t heads, std::int64_t key_width)
    : content_nk_(add_parameter("content", torch::zeros({heads, key_width}), {.init = Init::normal()})),
      distance_nk_(add_parameter("distance", torch::zeros({heads, key_width}), {.init = Init::normal()})) {}

TransformerXlImpl::TransformerXlImpl(const TransformerXlPositionsConfig& config, const MixerShape& shape,
                                     std::int64_t key_width)
    : heads_(shape.heads),
      projection_(register_module("projection", Linear(shape.width, shape.heads * key_width, /*bias=*/false))) {
  if (!config.shared_biases) biases_ = register_module("biases", DistanceBiases(shape.heads, key_width));
}

torch::Tensor TransformerXlImpl::with_content_bias(const torch::Tensor& q_bnck, const Visibility& visibility) const {
  const auto& content_nk = biases_.is_empty() ? visibility.content_bias_nk : biases_->content_nk();
  return q_bnck + content_nk.unsqueeze(1).to(q_bnck.scalar_type());
}

DistanceTerms TransformerXlImpl::terms(const Visibility& visibility) {
  const bool own = !biases_.is_empty();
  const auto& content_nk = own ? biases_->content_nk() : visibility.content_bias_nk;
  const auto& distance_nk = own ? biases_->distance_nk() : visibility.distance_bias_nk;
  return {.bias_n1k = (distance_nk - content_nk).unsqueeze(1),
          .key_nlk = projection_(visibility.distance_ld).unflatten(1, {heads_, -1}).transpose(0, 1),
          .term_n1l = {},
          .row_bnc1 = {}};
}

torch::Tensor shifted_by_distance(const torch::Tensor& x_bncl, std::int64_t keys) { return Shift::apply(x_bncl, keys); }

torch::Tensor queries_of_distances(const torch::Tensor& q_bnck, const DistanceTerms& terms) {
  return q_bnck + terms.bias_n1k.to(q_bnck.scalar_type());
}

torch::Tensor distance_scores(const torch::Tensor& q_bnck, const DistanceTerms& terms, std::int64_t keys) {
  auto of_distance_bncl = per_head_product(queries_of_distances(q_bnck, terms), terms.key_nlk.transpose(1, 2));
  if (terms.term_n1l.defined()) of_distance_bncl = of_distance_bncl + terms.term_n1l;
  if (terms.row_bnc1.defined()) of_distance_bncl = of_distance_bncl + terms.row_bnc1;
  return shifted_by_distance(of_distance_bncl, keys);
}

}  // namespace metaformer
