#include "ops/attention.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/dropout_places.h"
#include "cpu/attention.h"
#include "ops/dropout.h"
#include "ops/parallel.h"
#include "ops/recompute.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Where a row's padding starts, and whether all before it are of one segment.
struct RowExtent {
  std::int64_t queries = 0, keys = 0;
  bool is_whole = true;
};

RowExtent extent_of(const std::int64_t* query_segment, std::int64_t queries, const std::int64_t* key_segment,
                    std::int64_t keys) {
  while (queries > 0 && query_segment[queries - 1] == -1) --queries;
  while (keys > 0 && key_segment[keys - 1] == -1) --keys;
  const auto same = [&](std::int64_t s) { return s == key_segment[0]; };
  const bool is_whole = keys > 0 && std::all_of(key_segment, key_segment + keys, same) &&
                        std::all_of(query_segment, query_segment + queries, same);
  return {queries, keys, is_whole};
}

std::vector<RowExtent> extents_of(const Tensor& query_segment_bc, const Tensor& key_segment_be, std::int64_t batch,
                                  std::int64_t queries, std::int64_t keys) {
  std::vector<RowExtent> extents(static_cast<std::size_t>(batch), {queries, keys, true});
  if (!query_segment_bc.defined()) return extents;
  const auto* of_queries = query_segment_bc.const_data_ptr<std::int64_t>();
  const auto* of_keys = key_segment_be.const_data_ptr<std::int64_t>();
  for (std::int64_t b = 0; b < batch; ++b)
    extents[static_cast<std::size_t>(b)] = extent_of(of_queries + b * queries, queries, of_keys + b * keys, keys);
  return extents;
}

// A head's rows lie apart by the width of the model, which the CPU does not foresee: without this its first reads of
// them take a quarter of the time.
void prefetch(const HeadRows& rows, std::int64_t tokens, std::int64_t element_size) {
  constexpr std::int64_t cache_line = 64;
  const auto* row = static_cast<const char*>(rows.data);
  for (std::int64_t token = 0; token < tokens; ++token, row += rows.stride * element_size)
    for (std::int64_t byte = 0; byte < rows.width * element_size; byte += cache_line)
      __builtin_prefetch(row + byte, 0, 2);
}

// What is no tensor.
struct Rule {
  bool causal;
  std::int64_t window;
  double scale;
  HostMask mask;

  void keep_in(AutogradContext& context) const {
    auto& data = context.saved_data;
    data["causal"] = causal;
    data["window"] = window;
    data["scale"] = scale;
    mask.keep_in(context);
  }
  static Rule of(AutogradContext& context) {
    auto& data = context.saved_data;
    return {.causal = data["causal"].toBool(),
            .window = data["window"].toInt(),
            .scale = data["scale"].toDouble(),
            .mask = HostMask::kept_in(context)};
  }
};

// What forward and backward have in common, and the gradients where there are any.
struct Operands {
  Tensor q, k, v, t, log_sum_bnc, query_segment_bc, key_segment_be;
  Rule rule;
  Tensor distance_q = {}, distance_bnlk = {};
  std::vector<RowExtent> extents_b = extents_of(query_segment_bc, key_segment_be, q.size(0), q.size(2), k.size(2));
  Tensor dt = {}, dq = {}, dk = {}, dv = {}, ddistance_q = {}, ddistance_bnlk = {};

  HeadAttention head(std::int64_t b, std::int64_t n) const {
    const auto queries = q.size(2), keys = k.size(2);
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
            .dropout = rule.mask.drops() ? DropoutMask(rule.mask.probability, rule.mask.seed) : DropoutMask(),
            .first_place = cuda::place_of_weight(rule.mask.first_row + b, n, 0, 0),
            .q = rows_of(q, b, n),
            .k = rows_of(k, b, n),
            .v = rows_of(v, b, n),
            .t = rows_of(t, b, n),
            .query_segment = segment(query_segment_bc),
            .key_segment = segment(key_segment_be),
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

  template <class Work>
  void for_every_head(Work work) const {
    const auto heads = q.size(1);
    at::parallel_for(0, q.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      static thread_local HeadWorkspace room;
      for (auto i = begin; i < end; ++i) {
        if (i + 1 < end) prefetch_inputs(head((i + 1) / heads, (i + 1) % heads));
        work(head(i / heads, i % heads), room);
      }
    });
  }

  void compute() const {
    for_every_head([](const HeadAttention& head, HeadWorkspace& room) { attend_forward(head, room); });
  }
  void compute_gradients() const {
    for_every_head([](const HeadAttention& head, HeadWorkspace& room) { attend_backward(head, room); });
  }
};

// Absent inputs are nothing to LibTorch's functions only as optionals.
std::optional<Tensor> if_any(const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

class HostAttention : public torch::autograd::Function<HostAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& query_segments, const std::optional<Tensor>& key_segments,
                        const std::optional<Tensor>& distance_q, const std::optional<Tensor>& distance_nlk,
                        const Rule& rule) {
    Operands operands{.q = with_features_together(q),
                      .k = with_features_together(k),
                      .v = with_features_together(v),
                      .t = empty_by_token(v, q.size(2)),
                      .log_sum_bnc = empty_log_sum(q),
                      .query_segment_bc = query_segments.value_or(Tensor()),
                      .key_segment_be = key_segments.value_or(Tensor()),
                      .rule = rule};
    if (distance_nlk) {
      operands.distance_q = with_features_together(*distance_q);
      operands.distance_bnlk = with_features_together(distance_nlk->expand({q.size(0), -1, -1, -1}));
    }
    operands.compute();
    context->save_for_backward({operands.q, operands.k, operands.v, operands.t, operands.log_sum_bnc,
                                operands.query_segment_bc, operands.key_segment_be, operands.distance_q,
                                operands.distance_bnlk});
    rule.keep_in(*context);
    return operands.t;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("attention");
    const auto saved = context->get_saved_variables();
    Operands operands{.q = saved[0],
                      .k = saved[1],
                      .v = saved[2],
                      .t = saved[3],
                      .log_sum_bnc = saved[4],
                      .query_segment_bc = saved[5],
                      .key_segment_be = saved[6],
                      .rule = Rule::of(*context),
                      .distance_q = saved[7],
                      .distance_bnlk = saved[8]};
    operands.dt = with_features_together(gradients[0]);
    operands.dq = empty_by_token(operands.q);
    operands.dk = empty_by_token(operands.k);
    if (!operands.head(0, 0).shares_values()) operands.dv = empty_by_token(operands.v);
    Tensor ddistance_nlk;
    if (operands.distance_q.defined()) {
      operands.ddistance_q = empty_by_token(operands.distance_q);
      operands.ddistance_bnlk = torch::empty(operands.distance_bnlk.sizes(), operands.distance_bnlk.options());
      operands.compute_gradients();
      ddistance_nlk = operands.ddistance_bnlk.sum(0);
    } else {
      operands.compute_gradients();
    }
    return {operands.dq, operands.dk, operands.dv, {}, {}, operands.ddistance_q, ddistance_nlk, {}};
  }
};

class HostAttentionOfProjection : public torch::autograd::Function<HostAttentionOfProjection> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& projected_bcd,
                        const std::optional<Tensor>& segments_if_any, std::int64_t heads, const Rule& rule) {
    const at::AutoDispatchBelowADInplaceOrView no_views;  // views that the graph knows cost more
    auto t_bcd = torch::empty({projected_bcd.size(0), projected_bcd.size(1), projected_bcd.size(2) / 3},
                              projected_bcd.options());
    const auto [q_bnck, k_bnck, v_bnck] = thirds_bnck(projected_bcd, heads);
    const Operands operands{.q = q_bnck,
                            .k = k_bnck,
                            .v = v_bnck,
                            .t = split_heads(t_bcd, heads),
                            .log_sum_bnc = empty_log_sum(q_bnck),
                            .query_segment_bc = segments_if_any.value_or(Tensor()),
                            .key_segment_be = segments_if_any.value_or(Tensor()),
                            .rule = rule};
    operands.compute();
    context->save_for_backward({projected_bcd, t_bcd, operands.log_sum_bnc, operands.query_segment_bc});
    context->saved_data["heads"] = heads;
    rule.keep_in(*context);
    return t_bcd;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    require_first_order("attention");
    const auto saved = context->get_saved_variables();
    const auto heads = context->saved_data["heads"].toInt();
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const auto [q_bnck, k_bnck, v_bnck] = thirds_bnck(saved[0], heads);
    Operands operands{.q = q_bnck,
                      .k = k_bnck,
                      .v = v_bnck,
                      .t = split_heads(saved[1], heads),
                      .log_sum_bnc = saved[2],
                      .query_segment_bc = saved[3],
                      .key_segment_be = saved[3],
                      .rule = Rule::of(*context)};
    operands.dt = split_heads(gradients[0].contiguous(), heads);
    const auto dprojected_bcd = torch::empty_like(saved[0]);
    std::tie(operands.dq, operands.dk, operands.dv) = std::tuple_cat(thirds_bnck(dprojected_bcd, heads));
    operands.compute_gradients();
    return {dprojected_bcd, {}, {}, {}};
  }
};

std::optional<Tensor> as_segments(const Tensor& segment) {
  if (!segment.defined()) return std::nullopt;
  return segment.to(torch::kLong).contiguous();
}

Rule rule_of(const HostAttentionOptions& options, Pass& pass) {
  return {.causal = options.causal,
          .window = options.window,
          .scale = options.scale,
          .mask = HostMask::of(options.dropout, pass)};
}

bool has_kernel(const Tensor& x, std::int64_t keys) {
  const auto type = x.scalar_type();
  return x.is_cpu() && (type == torch::kFloat || type == torch::kBFloat16) && keys <= longest_host_attention &&
         x.numel() > 0;
}

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
                      const HostAttentionOptions& options, Pass& pass, const HostDistances& distances) {
  const auto query_segments = as_segments(options.query_segment_bc);
  const bool same = options.key_segment_be.is_same(options.query_segment_bc);
  return HostAttention::apply(q_bnck, k_bnek, value_bnej, query_segments,
                              same ? query_segments : as_segments(options.key_segment_be), if_any(distances.q_bnck),
                              if_any(distances.key_nlk), rule_of(options, pass));
}

Tensor host_attention(const Tensor& projected_bcd, std::int64_t heads, const HostAttentionOptions& options,
                      Pass& pass) {
  return HostAttentionOfProjection::apply(projected_bcd, as_segments(options.query_segment_bc), heads,
                                          rule_of(options, pass));
}

}  // namespace metaformer
