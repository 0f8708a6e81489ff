#include "ops/host_attention.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ops/first_order.h"
#include "ops/heads.h"
#include "ops/host_attention_kernel.h"
#include "ops/parallel.h"

namespace metaformer {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor with_features_together(const Tensor& x_bnck) { return x_bnck.stride(3) == 1 ? x_bnck : x_bnck.contiguous(); }

HeadRows rows_of(const Tensor& x_bnck, std::int64_t batch, std::int64_t head) {
  if (!x_bnck.defined()) return {};
  auto* data = static_cast<char*>(x_bnck.data_ptr());
  const auto offset = batch * x_bnck.stride(0) + head * x_bnck.stride(1);
  return {data + offset * x_bnck.element_size(), x_bnck.stride(2), x_bnck.size(3)};
}

// Where a row's padding starts, and whether all before it are of one segment.
struct RowExtent {
  std::int64_t tokens = 0;
  bool is_whole = true;
};

RowExtent extent_of(const std::int64_t* segment, std::int64_t tokens) {
  while (tokens > 0 && segment[tokens - 1] == -1) --tokens;
  const bool is_whole = std::all_of(segment, segment + tokens, [&](std::int64_t s) { return s == segment[0]; });
  return {tokens, is_whole};
}

std::vector<RowExtent> extents_of(const Tensor& segment_bc, std::int64_t batch, std::int64_t tokens) {
  std::vector<RowExtent> extents(static_cast<std::size_t>(batch), {tokens, true});
  if (!segment_bc.defined()) return extents;
  const auto* segment = segment_bc.const_data_ptr<std::int64_t>();
  for (std::int64_t b = 0; b < batch; ++b)
    extents[static_cast<std::size_t>(b)] = extent_of(segment + b * tokens, tokens);
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

// What forward and backward have in common, and the gradients where there are any.
struct Operands {
  Tensor q, k, v, t, log_sum_bnc, segment_bc;
  bool causal;
  double scale, dropout;
  std::int64_t seed;
  std::vector<RowExtent> extents_b;
  Tensor dt, dq, dk, dv;

  HeadAttention head(std::int64_t b, std::int64_t n) const {
    const auto tokens = q.size(2);
    const auto& extent = extents_b[static_cast<std::size_t>(b)];
    return {.bf16 = q.scalar_type() == torch::kBFloat16,
            .causal = causal,
            .tokens = extent.tokens,
            .padding = tokens - extent.tokens,
            .scale = static_cast<float>(scale),
            .dropout = static_cast<float>(dropout),
            .seed = static_cast<std::uint32_t>(seed + b * q.size(1) + n),
            .q = rows_of(q, b, n),
            .k = rows_of(k, b, n),
            .v = rows_of(v, b, n),
            .t = rows_of(t, b, n),
            .segment = extent.is_whole ? nullptr : segment_bc.const_data_ptr<std::int64_t>() + b * tokens,
            .log_sum = log_sum_bnc.data_ptr<float>() + (b * q.size(1) + n) * tokens,
            .dt = rows_of(dt, b, n),
            .dq = rows_of(dq, b, n),
            .dk = rows_of(dk, b, n),
            .dv = rows_of(dv, b, n)};
  }

  void prefetch_inputs(const HeadAttention& next) const {
    for (const auto& rows : {next.q, next.k, next.v, next.dt})
      if (rows.data != nullptr) prefetch(rows, next.tokens, q.element_size());
    if (next.dt.data != nullptr) prefetch(next.t, next.tokens, q.element_size());
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
};

class HostAttention : public torch::autograd::Function<HostAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& segments_if_any, bool causal, double scale, double dropout,
                        std::int64_t seed) {
    const Operands operands{.q = with_features_together(q),
                            .k = with_features_together(k),
                            .v = with_features_together(v),
                            .t = empty_by_token(v),
                            .log_sum_bnc = torch::empty({q.size(0), q.size(1), q.size(2)}, torch::kFloat),
                            .segment_bc = segments_if_any.value_or(Tensor()),
                            .causal = causal,
                            .scale = scale,
                            .dropout = dropout,
                            .seed = seed,
                            .extents_b = extents_of(segments_if_any.value_or(Tensor()), q.size(0), q.size(2))};
    operands.for_every_head([](const HeadAttention& head, HeadWorkspace& room) { attend_forward(head, room); });
    context->save_for_backward(
        {operands.q, operands.k, operands.v, operands.t, operands.log_sum_bnc, operands.segment_bc});
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    context->saved_data["dropout"] = dropout;
    context->saved_data["seed"] = seed;
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
                      .segment_bc = saved[5],
                      .causal = context->saved_data["causal"].toBool(),
                      .scale = context->saved_data["scale"].toDouble(),
                      .dropout = context->saved_data["dropout"].toDouble(),
                      .seed = context->saved_data["seed"].toInt(),
                      .extents_b = extents_of(saved[5], saved[0].size(0), saved[0].size(2)),
                      .dt = with_features_together(gradients[0]),
                      .dq = empty_by_token(saved[0]),
                      .dk = empty_by_token(saved[1])};
    if (!operands.head(0, 0).shares_values()) operands.dv = empty_by_token(operands.v);
    operands.for_every_head([](const HeadAttention& head, HeadWorkspace& room) { attend_backward(head, room); });
    return {operands.dq, operands.dk, operands.dv, {}, {}, {}, {}, {}};
  }
};

}  // namespace

bool can_attend_on_host(const Tensor& q_bnck, const Tensor& k_bnek, const Tensor& value_bnej) {
  const auto type = q_bnck.scalar_type();
  return q_bnck.is_cpu() && (type == torch::kFloat || type == torch::kBFloat16) && k_bnek.scalar_type() == type &&
         value_bnej.scalar_type() == type && q_bnck.size(2) == k_bnek.size(2) &&
         q_bnck.size(2) <= longest_host_attention && q_bnck.numel() > 0;
}

Tensor host_attention(const Tensor& q_bnck, const Tensor& k_bnek, const Tensor& value_bnej,
                      const HostAttentionOptions& options, Pass& pass) {
  // Absent inputs are nothing to LibTorch's functions only as optionals.
  std::optional<Tensor> segments;
  if (options.segment_bc.defined()) segments = options.segment_bc.to(torch::kLong).contiguous();
  const double dropout = pass.training ? options.dropout : 0;
  const auto seed = dropout > 0 ? static_cast<std::int64_t>(pass.random.next().seed()) : 0;
  return HostAttention::apply(q_bnck, k_bnek, value_bnej, segments, options.causal, options.scale, dropout, seed);
}

}  // namespace metaformer
