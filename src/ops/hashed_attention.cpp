#include "ops/hashed_attention.h"

#include <optional>

#include "cpu/hashed_attention.h"
#include "ops/attention.h"
#include "ops/parallel.h"
#include "ops/recompute.h"

namespace metaformer {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// 0, c, 2 c ... for the orders, [r, 1].
Tensor first_places_r1(const Tensor& of_bnrc) {
  return torch::arange(of_bnrc.size(2), of_bnrc.options()).unsqueeze(1) * of_bnrc.size(3);
}

// The rows of x_bnfk that index_bnrc names: [b, n, r c, k].
Tensor rows_at(const Tensor& x_bnfk, const Tensor& index_bnrc) {
  const auto pairs = x_bnfk.size(0) * x_bnfk.size(1);
  const auto index_ps = index_bnrc.reshape({pairs, -1});
  const auto first_p1 = torch::arange(pairs, index_bnrc.options()).unsqueeze(1) * x_bnfk.size(2);
  return x_bnfk.reshape({-1, x_bnfk.size(3)})
      .index_select(0, (index_ps + first_p1).flatten())
      .view({x_bnfk.size(0), x_bnfk.size(1), index_ps.size(1), x_bnfk.size(3)});
}

Tensor by_order(const Tensor& x_bnsk, const Tensor& like_bnrc) {
  return x_bnsk.unflatten(2, {like_bnrc.size(2), like_bnrc.size(3)});
}

class InOrders : public torch::autograd::Function<InOrders> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_bnck, const Tensor& token_bnrc,
                        const Tensor& place_bnrc) {
    context->save_for_backward({place_bnrc});
    return rows_at(x_bnck, token_bnrc);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a sort of vectors");
    const auto place_bnrc = context->get_saved_variables()[0];
    return {by_order(rows_at(gradients[0], place_bnrc), place_bnrc).sum(2), {}, {}};
  }
};

class OutOfOrders : public torch::autograd::Function<OutOfOrders> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_bnsk, const Tensor& token_bnrc,
                        const Tensor& place_bnrc) {
    context->save_for_backward({token_bnrc});
    return by_order(rows_at(x_bnsk, place_bnrc), place_bnrc);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("a sort of vectors");
    const auto token_bnrc = context->get_saved_variables()[0];
    return {rows_at(gradients[0].flatten(2, 3), token_bnrc + first_places_r1(token_bnrc)), {}, {}};
  }
};

}  // namespace

Orders sort_orders(const Tensor& key_bnrc) {
  const auto token_bnrc = key_bnrc.argsort(-1, /*descending=*/false);
  const auto place_c = torch::arange(key_bnrc.size(3), key_bnrc.options());
  const auto place_bnrc = torch::empty_like(token_bnrc).scatter_(3, token_bnrc, place_c.expand_as(token_bnrc));
  return {token_bnrc, place_bnrc + first_places_r1(key_bnrc)};
}

Tensor in_orders(const Tensor& x_bnck, const Orders& orders) {
  return InOrders::apply(x_bnck, orders.token_bnrc, orders.place_bnrc);
}

Tensor out_of_orders(const Tensor& x_bnsk, const Orders& orders) {
  return OutOfOrders::apply(x_bnsk, orders.token_bnrc, orders.place_bnrc);
}

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Operands {
  Tensor q, v, t, log_sum_bnc, bucket_bnrc, segment_bc;
  std::int64_t chunk = 0, buckets = 0;
  bool causal = false, same_bucket = false;
  Tensor dt = {}, dq = {}, dv = {};

  HashedHead head(std::int64_t b, std::int64_t n) const {
    const auto heads = q.size(1), tokens = q.size(2), rounds = bucket_bnrc.size(2);
    const auto number = b * heads + n;
    return {.causal = causal,
            .same_bucket = same_bucket,
            .tokens = tokens,
            .rounds = rounds,
            .chunk = chunk,
            .bucket = bucket_bnrc.const_data_ptr<std::int64_t>() + number * rounds * tokens,
            .buckets = buckets,
            .segment = segment_bc.defined() ? segment_bc.const_data_ptr<std::int64_t>() + b * tokens : nullptr,
            .q = rows_of(q, b, n),
            .v = rows_of(v, b, n),
            .t = rows_of(t, b, n),
            .log_sum = log_sum_bnc.data_ptr<float>() + number * tokens,
            .dt = rows_of(dt, b, n),
            .dq = rows_of(dq, b, n),
            .dv = rows_of(dv, b, n)};
  }

  void compute() const {
    const auto heads = q.size(1);
    at::parallel_for(0, q.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      static thread_local HeadWorkspace room;
      for (auto i = begin; i < end; ++i)
        dt.defined() ? attend_hashed_backward(head(i / heads, i % heads), room)
                     : attend_hashed(head(i / heads, i % heads), room);
    });
  }
};

class HashedAttention : public torch::autograd::Function<HashedAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& v, const Tensor& bucket_bnrc,
                        const std::optional<Tensor>& segments_if_any, std::int64_t chunk, bool causal,
                        bool same_bucket) {
    const Operands operands{.q = with_features_together(q),
                            .v = with_features_together(v),
                            .t = empty_by_token(v),
                            .log_sum_bnc = empty_log_sum(q),
                            .bucket_bnrc = bucket_bnrc.contiguous(),
                            .segment_bc = segments_if_any.value_or(Tensor()),
                            .chunk = chunk,
                            .buckets = bucket_bnrc.max().item<std::int64_t>() + 1,
                            .causal = causal,
                            .same_bucket = same_bucket};
    operands.compute();
    context->save_for_backward(
        {operands.q, operands.v, operands.t, operands.log_sum_bnc, operands.bucket_bnrc, operands.segment_bc});
    auto& data = context->saved_data;
    data["chunk"] = chunk;
    data["buckets"] = operands.buckets;
    data["causal"] = causal;
    data["same_bucket"] = same_bucket;
    return operands.t;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("LSH attention");
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const Operands operands{.q = saved[0],
                            .v = saved[1],
                            .t = saved[2],
                            .log_sum_bnc = saved[3],
                            .bucket_bnrc = saved[4],
                            .segment_bc = saved[5],
                            .chunk = data["chunk"].toInt(),
                            .buckets = data["buckets"].toInt(),
                            .causal = data["causal"].toBool(),
                            .same_bucket = data["same_bucket"].toBool(),
                            .dt = with_features_together(gradients[0]),
                            .dq = empty_by_token(saved[0]),
                            .dv = empty_by_token(saved[1])};
    operands.compute();
    return {operands.dq, operands.dv, {}, {}, {}, {}, {}};
  }
};

}  // namespace

bool can_attend_hashed(const Tensor& q_bnck, const HashedAttentionOptions& options) {
  const auto type = q_bnck.scalar_type();
  return q_bnck.is_cpu() && (type == torch::kFloat || type == torch::kBFloat16) &&
         options.chunk % hashed_chunk_step == 0 && q_bnck.numel() > 0;
}

Tensor hashed_attention(const Tensor& q_bnck, const Tensor& value_bnck, const Tensor& bucket_bnrc,
                        const HashedAttentionOptions& options) {
  std::optional<Tensor> segments;
  if (options.segment_bc.defined())
    segments = options.segment_bc.to(torch::kLong).expand({q_bnck.size(0), -1}).contiguous();
  return HashedAttention::apply(q_bnck.to(torch::kFloat), value_bnck.to(torch::kFloat), bucket_bnrc, segments,
                                options.chunk, options.causal, options.same_bucket)
      .to(value_bnck.scalar_type());
}

}  // namespace metaformer
