#include "ops/attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/dropout_places.h"
#include "cpu/attention.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

// The number of queries and keys of a row before its padding, and whether all of them are in one segment.
struct RowExtent {
  std::int64_t queries = 0, keys = 0;
  bool is_whole = true;
};

std::vector<RowExtent> extents_of(const HostAttentionOptions& rule, std::int64_t batch, std::int64_t all_queries,
                                  std::int64_t all_keys) {
  std::vector<RowExtent> extents(static_cast<std::size_t>(batch), {all_queries, all_keys, true});
  if (!rule.query_segment_bc.defined()) return extents;
  const auto* query = rule.query_segment_bc.const_data_ptr<std::int64_t>();
  const auto* key = rule.key_segment_be.const_data_ptr<std::int64_t>();
  for (auto& [queries, keys, is_whole] : extents) {
    while (queries > 0 && query[queries - 1] == -1) --queries;
    while (keys > 0 && key[keys - 1] == -1) --keys;
    const auto same = [&](std::int64_t segment) { return segment == key[0]; };
    is_whole = keys > 0 && std::all_of(key, key + keys, same) && std::all_of(query, query + queries, same);
    query += all_queries;
    key += all_keys;
  }
  return extents;
}

// The rows of a head are a model width apart, a stride that the CPU does not prefetch by itself. Without this function
// the first reads of the rows take a quarter of the time.
void prefetch(const HeadRows& rows, std::int64_t tokens, std::int64_t element_size) {
  constexpr std::int64_t cache_line = 64;
  const auto* row = static_cast<const char*>(rows.data);
  for (std::int64_t token = 0; token < tokens; ++token, row += rows.stride * element_size)
    for (std::int64_t byte = 0; byte < rows.width * element_size; byte += cache_line)
      __builtin_prefetch(row + byte, 0, 2);
}

Tensor as_segments(const Tensor& segment) {
  return segment.defined() ? segment.to(torch::kLong).contiguous() : segment;
}

// The options of one pass in the form that the kernels take. The node holds the segments as long as it lives; nothing
// changes them.
struct Rule : HostAttentionOptions {
  DropoutMask mask;
  std::int64_t first_row = 0;  // index in the step of the pass's first row

  // Makes one draw if this pass has dropout.
  Rule(const HostAttentionOptions& options, Pass& pass) : HostAttentionOptions(options) {
    query_segment_bc = as_segments(options.query_segment_bc);
    const bool same = options.key_segment_be.is_same(options.query_segment_bc);
    key_segment_be = same ? query_segment_bc : as_segments(options.key_segment_be);
    if (!pass.training || dropout == 0) return;
    const auto draw = pass.random.next();
    mask = DropoutMask(dropout, draw.seed());
    first_row = draw.first_row;
  }
};

// The operands that forward and backward share, and in backward the gradients.
struct Operands {
  Tensor q, k, v, t, log_sum_bnc;
  Rule rule;
  Tensor distance_q = {}, distance_bnlk = {}, sink_n = {};  // the sinks in float32
  std::vector<RowExtent> extents_b = extents_of(rule, q.size(0), q.size(2), k.size(2));
  Tensor dt = {}, dq = {}, dk = {}, dv = {}, ddistance_q = {}, ddistance_bnlk = {};

  HeadAttention head(std::int64_t b, std::int64_t n) const {
    const auto queries = q.size(2), keys = k.size(2);
    const auto key_head = n / (q.size(1) / k.size(1)), value_head = n / (q.size(1) / v.size(1));
    const auto& extent = extents_b[static_cast<std::size_t>(b)];
    const auto segment = [&](const Tensor& x) {
      return extent.is_whole ? nullptr : x.const_data_ptr<std::int64_t>() + b * x.size(1);
    };
    return {.bf16 = q.scalar_type() == torch::kBFloat16,
            .causal = rule.causal,
            .queries = extent.queries,
            .keys = extent.keys,
            .query_padding = queries - extent.queries,
            .key_padding = keys - extent.keys,
            .offset = std::max<std::int64_t>(0, keys - queries),
            .window = rule.window,
            .scale = static_cast<float>(rule.scale),
            .sink = sink_n.defined() ? sink_n.const_data_ptr<float>()[n] : -std::numeric_limits<float>::infinity(),
            .dropout = rule.mask,
            .first_place = cuda::place_of_head(rule.first_row + b, n),
            .q = rows_of(q, b, n),
            .k = rows_of(k, b, key_head),
            .v = rows_of(v, b, value_head),
            .t = rows_of(t, b, n),
            .query_segment = segment(rule.query_segment_bc),
            .key_segment = segment(rule.key_segment_be),
            .log_sum = log_sum_bnc.data_ptr<float>() + (b * q.size(1) + n) * queries,
            .distance_q = rows_of(distance_q, b, n),
            .distance = rows_of(distance_bnlk, b, n),
            .distances = distance_bnlk.defined() ? distance_bnlk.size(2) : 0,
            .dt = rows_of(dt, b, n),
            .dq = rows_of(dq, b, n),
            .dk = rows_of(dk, b, n),
            .dv = rows_of(dv, b, n),
            .ddistance_q = rows_of(ddistance_q, b, n),
            .ddistance = rows_of(ddistance_bnlk, b, n)};
  }

  void prefetch_inputs(const HeadAttention& next) const {
    const bool backward = next.dt.data != nullptr;
    for (const auto& rows : {next.q, backward ? next.t : HeadRows{}, next.dt, next.distance_q})
      if (rows.data != nullptr) prefetch(rows, next.queries, q.element_size());
    for (const auto& rows : {next.k, next.v}) prefetch(rows, next.keys, q.element_size());
  }

  // Computes backward if dt is defined, otherwise forward.
  void compute() const {
    const auto heads = q.size(1);
    at::parallel_for(0, q.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      static thread_local HeadWorkspace workspace;
      for (auto i = begin; i < end; ++i) {
        if (i + 1 < end) prefetch_inputs(head((i + 1) / heads, (i + 1) % heads));
        (dt.defined() ? attend_backward : attend_forward)(head(i / heads, i % heads), workspace, widest_vector_code());
      }
    });
  }
};

Tensor as_sinks(const Tensor& sink_n) { return sink_n.defined() ? sink_n.to(torch::kFloat).contiguous() : sink_n; }

// The gradient of the sinks, whose values are 0: minus the sum over the queries of the sink's weight times (dt . t).
Tensor sink_gradient(const Tensor& sink_n, const Tensor& log_sum_bnc, const Tensor& t_bnck, const Tensor& dt_bnck) {
  const auto share_bnc = (sink_n.to(torch::kFloat).view({1, -1, 1}) - log_sum_bnc).exp();
  const auto delta_bnc = (dt_bnck.to(torch::kFloat) * t_bnck.to(torch::kFloat)).sum(3);
  return -(share_bnc * delta_bnc).sum(at::IntArrayRef{0, 2}).to(sink_n.scalar_type());
}

// Sums gradients of all query heads to those of `heads` heads, each of which serves several query heads.
Tensor summed_by_head(const Tensor& dx_bnek, std::int64_t heads) {
  return dx_bnek.size(1) == heads ? dx_bnek : dx_bnek.unflatten(1, {heads, -1}).sum(2);
}

Tensors attention_backward(const Backward& in, const Rule& rule) {
  const auto &q = in.saved[0], &k = in.saved[1], &v = in.saved[2], &sink_n = in.saved[7];
  Operands operands{.q = q,
                    .k = k,
                    .v = v,
                    .t = in.saved[3],
                    .log_sum_bnc = in.saved[4],
                    .rule = rule,
                    .distance_q = in.saved[5],
                    .distance_bnlk = in.saved[6],
                    .sink_n = as_sinks(sink_n),
                    .dt = with_features_together(in.dy[0]),
                    .dq = empty_by_token(q),
                    .dk = empty_by_token(k, k.size(2), q.size(1))};
  if (!operands.head(0, 0).shares_values()) operands.dv = empty_by_token(v, v.size(2), q.size(1));
  if (operands.distance_q.defined()) {
    operands.ddistance_q = empty_by_token(operands.distance_q);
    operands.ddistance_bnlk = torch::empty(operands.distance_bnlk.sizes(), operands.distance_bnlk.options());
  }
  operands.compute();
  Tensors gradients = {operands.dq, summed_by_head(operands.dk, k.size(1)),
                       operands.dv.defined() ? summed_by_head(operands.dv, v.size(1)) : Tensor()};
  gradients.push_back(operands.ddistance_q);
  gradients.push_back(operands.ddistance_bnlk.defined() ? operands.ddistance_bnlk.sum(0) : Tensor());
  gradients.push_back(sink_n.defined() ? sink_gradient(sink_n, operands.log_sum_bnc, operands.t, operands.dt)
                                       : Tensor());
  return gradients;
}

Tensors projection_backward(const Backward& in, std::int64_t heads, const Rule& rule) {
  const at::AutoDispatchBelowADInplaceOrView no_views;
  const auto [q_bnck, k_bnck, v_bnck] = thirds_bnck(in.saved[0], heads);
  const auto dprojected_bcd = torch::empty_like(in.saved[0]);
  const auto [dq, dk, dv] = thirds_bnck(dprojected_bcd, heads);
  const auto &log_sum_bnc = in.saved[2], &sink_n = in.saved[3];
  const auto t_bnck = split_heads(in.saved[1], heads), dt_bnck = split_heads(in.dy[0].contiguous(), heads);
  Operands{.q = q_bnck,
           .k = k_bnck,
           .v = v_bnck,
           .t = t_bnck,
           .log_sum_bnc = log_sum_bnc,
           .rule = rule,
           .sink_n = as_sinks(sink_n),
           .dt = dt_bnck,
           .dq = dq,
           .dk = dk,
           .dv = dv}
      .compute();
  return {dprojected_bcd, sink_n.defined() ? sink_gradient(sink_n, log_sum_bnc, t_bnck, dt_bnck) : Tensor()};
}

bool has_kernel(const Tensor& x, std::int64_t keys) { return fits_cpu_kernels(x) && keys <= longest_host_attention; }

}  // namespace

bool can_attend_on_host(const Tensor& q_bnck, const Tensor& k_bnek, const Tensor& value_bnej) {
  constexpr std::int64_t few_queries = 16;
  const auto type = q_bnck.scalar_type();
  const auto queries = q_bnck.size(2), keys = k_bnek.size(2);
  return has_kernel(q_bnck, keys) && k_bnek.scalar_type() == type && value_bnej.scalar_type() == type &&
         (queries == keys || (queries >= few_queries && queries < keys));
}

bool can_attend_on_host(const Tensor& projected_bcd) {
  return has_kernel(projected_bcd, projected_bcd.size(1)) && projected_bcd.is_contiguous();
}

Tensor host_attention(const Tensor& q_bnck, const Tensor& k_bnek, const Tensor& value_bnej,
                      const HostAttentionOptions& options, Pass& pass, const HostDistances& distances,
                      const Tensor& sink_n) {
  const Rule rule(options, pass);
  const Tensors inputs = {q_bnck, k_bnek, value_bnej, distances.q_bnck, distances.key_nlk, sink_n};
  const auto forward = [&](Tensors& saved) {
    Operands operands{.q = with_features_together(q_bnck),
                      .k = with_features_together(k_bnek),
                      .v = with_features_together(value_bnej),
                      .t = empty_by_token(value_bnej, q_bnck.size(2), q_bnck.size(1)),
                      .log_sum_bnc = empty_per_row(q_bnck),
                      .rule = rule,
                      .sink_n = as_sinks(sink_n)};
    if (distances.key_nlk.defined()) {
      operands.distance_q = with_features_together(distances.q_bnck);
      operands.distance_bnlk = with_features_together(distances.key_nlk.expand({q_bnck.size(0), -1, -1, -1}));
    }
    operands.compute();
    saved = {operands.q,
             operands.k,
             operands.v,
             operands.t,
             operands.log_sum_bnc,
             operands.distance_q,
             operands.distance_bnlk,
             sink_n};
    return operands.t;
  };
  return own_node("attention", inputs, forward, [rule](const Backward& in) { return attention_backward(in, rule); });
}

Tensor host_attention(const Tensor& projected_bcd, std::int64_t heads, const HostAttentionOptions& options, Pass& pass,
                      const Tensor& sink_n) {
  const Rule rule(options, pass);
  const auto forward = [&](Tensors& saved) {
    const at::AutoDispatchBelowADInplaceOrView no_views;  // views that autograd records cost more
    const auto t_bcd = torch::empty({projected_bcd.size(0), projected_bcd.size(1), projected_bcd.size(2) / 3},
                                    projected_bcd.options());
    const auto [q_bnck, k_bnck, v_bnck] = thirds_bnck(projected_bcd, heads);
    const Operands operands{.q = q_bnck,
                            .k = k_bnck,
                            .v = v_bnck,
                            .t = split_heads(t_bcd, heads),
                            .log_sum_bnc = empty_per_row(q_bnck),
                            .rule = rule,
                            .sink_n = as_sinks(sink_n)};
    operands.compute();
    saved = {projected_bcd, t_bcd, operands.log_sum_bnc, sink_n};
    return t_bcd;
  };
  return own_node("attention", {projected_bcd, sink_n}, forward,
                  [heads, rule](const Backward& in) { return projection_backward(in, heads, rule); });
}

}  // namespace metaformer
