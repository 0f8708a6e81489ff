#include "ops/state_mixing.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <vector>

#include "cpu/state_mixing.h"
#include "ops/attention.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

constexpr std::int64_t most_tokens_of_chunk = 64, tokens_of_part = 16;

// The inputs in float32 or float64.
struct Steps {
  Tensor q, k, value, log_decay, a, b, segment_bc;
  double least_log_decay = 0;
  bool has_products() const { return a.defined(); }
  bool has_segments() const { return segment_bc.defined(); }
  bool has_decay() const { return log_decay.defined(); }
  bool decays_by_feature() const { return has_decay() && log_decay.size(-1) > 1; }
};

Tensor wide(const Tensor& x) { return x.defined() && x.scalar_type() != torch::kDouble ? x.to(torch::kFloat) : x; }

Steps widened(const StateSteps& given) {
  return {.q = wide(given.q_bnck),
          .k = wide(given.k_bnck),
          .value = wide(given.value_bncv),
          .log_decay = wide(given.log_decay_bncw),
          .a = wide(given.a_bnck),
          .b = wide(given.b_bnck),
          .segment_bc = given.segment_bc,
          .least_log_decay = given.least_log_decay};
}

// The widened inputs, in which padding neither reads nor writes.
Steps prepared(const StateSteps& given) {
  auto steps = widened(given);
  if (!steps.has_segments()) return steps;
  const auto exists_b1c1 = (given.segment_bc >= 0).unsqueeze(1).unsqueeze(3).to(steps.k.scalar_type());
  steps.q = steps.q * exists_b1c1;
  steps.k = steps.k * exists_b1c1;
  if (steps.has_products()) steps.a = steps.a * exists_b1c1;
  if (steps.has_decay()) steps.log_decay = steps.log_decay * exists_b1c1;
  return steps;
}

Tensor empty_state(const Steps& steps) {
  return torch::zeros({steps.k.size(0), steps.k.size(1), steps.value.size(3), steps.k.size(3)}, steps.k.options());
}

// The segment of every token. Padding gets that of the token before it, so that it neither ends nor begins a segment.
Tensor filled_segments(const Tensor& segment_bc, const Tensor& before_b) {
  const auto place = torch::arange(segment_bc.size(1), segment_bc.options());
  const auto last_bc = std::get<0>(torch::where(segment_bc >= 0, place, -1).cummax(1));
  return torch::where(last_bc >= 0, segment_bc.gather(1, last_bc.clamp_min(0)), before_b.unsqueeze(1));
}

Tensor first_segment_b(const Tensor& segment_bc) {
  const auto first_b1 = (segment_bc >= 0).to(torch::kInt).argmax(1, /*keepdim=*/true);
  return segment_bc.gather(1, first_b1).squeeze(1);
}

// The chunks of a sequence, [b, n, m, c, ...]: m chunks of c tokens. Tokens beyond the end of the sequence write
// nothing.
class Chunks {
 public:
  Chunks(const Steps& steps, const StateMemory& memory)
      : tokens_(steps.k.size(2)),
        size_(tokens_of_chunk(tokens_)),
        count_((tokens_ + size_ - 1) / size_),
        least_log_kept_(steps.least_log_decay * static_cast<double>(size_)) {
    q = cut(steps.q);
    k = cut(steps.k);
    value = cut(steps.value);
    if (steps.has_products()) a = cut(steps.a), b = cut(steps.b);
    if (steps.has_decay()) {
      log_decay = cut(steps.log_decay);
      log_kept = log_decay.cumsum(3);
    }
    if (steps.has_segments()) cut_segments(steps.segment_bc, memory);
    const auto ones = torch::ones({size_, size_}, k.options());
    seen = ones.tril();
    earlier = ones.tril(-1);
    if (same.defined()) {
      seen = seen * same;
      earlier = earlier * same;
    }
  }

  std::int64_t count() const { return count_; }
  std::int64_t size() const { return size_; }

  // [b, n, m, c, v] -> [b, n, tokens, v].
  Tensor joined(const Tensor& x) const { return x.flatten(2, 3).narrow(2, 0, tokens_); }

  // sum over features of left_t right_s exp(L_t - R_s), for s at most t (other entries: any finite number):
  // [b, n, m, c, c]. L and R are sums of log decays up to, or before, a token, so the exponents for s at most t are at
  // most 0.
  Tensor products(const Tensor& left, const Tensor& left_log, const Tensor& right, const Tensor& right_log) const {
    if (!log_kept.defined()) return torch::matmul(left, right.transpose(3, 4));
    if (log_kept.size(-1) == 1) {
      const auto exponent = (left_log - right_log.transpose(3, 4)).clamp_max(0);
      return torch::matmul(left, right.transpose(3, 4)) * exponent.exp();
    }
    // Here exp(L_t - R_s) is a product of two factors that single precision can represent.
    if (least_log_kept_ > least_factored_log)
      return torch::matmul(left * left_log.exp(), (right * (-right_log).exp()).transpose(3, 4));
    return products_by_feature(left, left_log, right, right_log);
  }

  // x times the decay from before the chunk to a token, and from a token to the end of its chunk; without decay x.
  Tensor from_start(const Tensor& x, const Tensor& log) const { return log.defined() ? x * log.exp() : x; }
  Tensor to_end(const Tensor& x) const {
    return log_kept.defined() ? x * (log_kept.narrow(3, size_ - 1, 1) - log_kept).exp() : x;
  }
  // The decay over the whole chunk i, [b, n, 1, w]; undefined: 1.
  Tensor kept_by_chunk(std::int64_t i) const {
    return log_kept.defined() ? log_kept.select(2, i).narrow(2, size_ - 1, 1).exp() : Tensor();
  }

  Tensor log_before() const { return log_kept.defined() ? log_kept - log_decay : Tensor(); }

  Tensor q, k, value, a, b, log_decay, log_kept;
  // [c, c], or [b, 1, m, c, c]: 1 where token t sees token s of its chunk; `seen` includes t itself, `earlier` not.
  Tensor seen, earlier;
  // [b, 1, m, c, 1] twice, then [b, m]: 1 for tokens in the segment of the state before the chunk, for tokens in the
  // chunk's last segment, and for chunks whose last segment is that of the state before them; undefined: 1.
  Tensor sees_state, writes_state, keeps_state_bm;

 private:
  Tensor cut(const Tensor& x_bnck) const {
    return torch::constant_pad_nd(x_bnck, {0, 0, 0, count_ * size_ - tokens_}).unflatten(2, {count_, size_});
  }

  void cut_segments(const Tensor& segment_bc, const StateMemory& memory) {
    const auto type = k.scalar_type();
    const auto behind = torch::full({segment_bc.size(0), count_ * size_ - tokens_}, -1, segment_bc.options());
    const auto segment_bmc =
        filled_segments(torch::cat({segment_bc, behind}, 1), memory.segment_b).unflatten(1, {count_, size_});
    const auto ends_bm = segment_bmc.select(2, size_ - 1);
    const auto before_bm = torch::cat({memory.segment_b.unsqueeze(1), ends_bm.narrow(1, 0, count_ - 1)}, 1);
    same = (segment_bmc.unsqueeze(3) == segment_bmc.unsqueeze(2)).to(type).unsqueeze(1);
    sees_state = (segment_bmc == before_bm.unsqueeze(2)).to(type).unsqueeze(1).unsqueeze(4);
    writes_state = (segment_bmc == ends_bm.unsqueeze(2)).to(type).unsqueeze(1).unsqueeze(4);
    keeps_state_bm = (before_bm == ends_bm).to(type);
  }

  // With a decay for every feature, exp(L_t - R_s) is split into two factors at a place between s and t, so that both
  // are at most 1: the beginning of the part of the chunk that contains t. Within a part every pair has its own
  // exponents.
  Tensor products_by_feature(const Tensor& left, const Tensor& left_log, const Tensor& right,
                             const Tensor& right_log) const {
    std::vector<Tensor> rows;
    for (std::int64_t first = 0; first < size_; first += tokens_of_part) {
      const auto tokens = std::min(tokens_of_part, size_ - first);
      const auto part = [&](const Tensor& x) { return x.narrow(3, first, tokens); };
      std::vector<Tensor> columns;
      if (first > 0) {
        const auto between = log_kept.narrow(3, first - 1, 1);
        const auto before = [&](const Tensor& x) { return x.narrow(3, 0, first); };
        columns.push_back(torch::matmul(part(left) * (part(left_log) - between).exp(),
                                        (before(right) * (between - before(right_log)).exp()).transpose(3, 4)));
      }
      const auto exponent = (part(left_log).unsqueeze(4) - part(right_log).unsqueeze(3)).clamp_max(0);
      columns.push_back(torch::einsum("bnmtk,bnmsk,bnmtsk->bnmts", {part(left), part(right), exponent.exp()}));
      if (const auto behind = size_ - first - tokens; behind > 0)
        columns.push_back(
            torch::zeros({1}, left.options()).expand({left.size(0), left.size(1), left.size(2), tokens, behind}));
      rows.push_back(torch::cat(columns, 4));
    }
    return torch::cat(rows, 3);
  }

  static constexpr double least_factored_log = -60;
  std::int64_t tokens_, size_, count_;
  double least_log_kept_;  // lower bound of a chunk's log decay
  Tensor same;
};

Tensor masked(const Tensor& x, const Tensor& mask) { return mask.defined() ? x * mask : x; }

Tensor mix_chunks(const Steps& steps, StateMemory& memory) {
  const Chunks chunks(steps, memory);
  const auto& kept = chunks.log_kept;
  // The results that tokens read from their own chunk, and the factors by which they read the state before it.
  auto o = torch::matmul(chunks.products(chunks.q, kept, chunks.k, kept) * chunks.seen, chunks.value);
  const auto reads = masked(chunks.from_start(chunks.q, kept), chunks.sees_state);
  const auto writes = torch::matmul(masked(chunks.value, chunks.writes_state).transpose(3, 4), chunks.to_end(chunks.k));
  // u_t = S_(t-1) a_t solves (1 - A) u = Y + X S^T, S being the state before the chunk: A holds products of a_t and
  // b_s, Y what a_t reads of its own chunk, and X how it reads S.
  Tensor from_state, from_chunk, through_u, writes_u;
  if (steps.has_products()) {
    const auto before = chunks.log_before();
    const auto unit = torch::eye(chunks.size(), chunks.k.options());
    const auto left = unit - chunks.products(chunks.a, before, chunks.b, kept) * chunks.earlier;
    const auto of_chunk =
        torch::matmul(chunks.products(chunks.a, before, chunks.k, kept) * chunks.earlier, chunks.value);
    const auto of_state = masked(chunks.from_start(chunks.a, before), chunks.sees_state);
    const auto solved = torch::linalg_solve_triangular(left, torch::cat({of_state, of_chunk}, 4), /*upper=*/false,
                                                       /*left=*/true, /*unitriangular=*/true);
    from_state = solved.narrow(4, 0, of_state.size(4));
    from_chunk = solved.narrow(4, of_state.size(4), of_chunk.size(4));
    through_u = chunks.products(chunks.q, kept, chunks.b, kept) * chunks.seen;
    writes_u = masked(chunks.to_end(chunks.b), chunks.writes_state);
  }
  auto state = memory.state_bnvk.defined() ? memory.state_bnvk : empty_state(steps);
  std::vector<Tensor> states, all_u;
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    states.push_back(state);
    auto next = writes.select(2, i);
    if (steps.has_products()) {
      const auto u = from_chunk.select(2, i) + torch::matmul(from_state.select(2, i), state.transpose(2, 3));
      all_u.push_back(u);
      next = next + torch::matmul(u.transpose(2, 3), writes_u.select(2, i));
    }
    if (chunks.keeps_state_bm.defined()) state = state * chunks.keeps_state_bm.select(1, i).view({-1, 1, 1, 1});
    if (const auto decay = chunks.kept_by_chunk(i); decay.defined()) state = state * decay;
    state = state + next;
  }
  o = o + torch::matmul(reads, torch::stack(states, 2).transpose(3, 4));
  if (steps.has_products()) o = o + torch::matmul(through_u, torch::stack(all_u, 2));
  memory.state_bnvk = state;
  return chunks.joined(o);
}

Tensor mix_tokens(const Steps& steps, StateMemory& memory) {
  auto state = memory.state_bnvk.defined() ? memory.state_bnvk : empty_state(steps);
  auto before_b = memory.segment_b;
  const auto segment_bc = steps.has_segments() ? filled_segments(steps.segment_bc, before_b) : Tensor();
  std::vector<Tensor> read;
  for (std::int64_t t = 0; t < steps.k.size(2); ++t) {
    const auto at = [t](const Tensor& x) { return x.select(2, t).unsqueeze(3); };  // [b, n, k, 1]
    if (steps.has_segments()) {
      const auto own_b = segment_bc.select(1, t);
      state = state * (own_b == before_b).view({-1, 1, 1, 1}).to(state.scalar_type());
      before_b = own_b;
    }
    auto next = torch::matmul(at(steps.value), at(steps.k).transpose(2, 3));
    if (steps.has_products())
      next = next + torch::matmul(torch::matmul(state, at(steps.a)), at(steps.b).transpose(2, 3));
    state = (steps.has_decay() ? state * at(steps.log_decay).transpose(2, 3).exp() : state) + next;
    read.push_back(torch::matmul(state, at(steps.q)).squeeze(3));
  }
  memory.state_bnvk = state;
  return torch::stack(read, 2);
}

// The kernels' view of the tensors of a batch, [b, n, c, features] with contiguous features.
struct StateOperands {
  explicit StateOperands(const Tensors& tensors)
      : q(tensors[0]),
        k(tensors[1]),
        value(tensors[2]),
        log_decay(tensors[3]),
        a(tensors[4]),
        b(tensors[5]),
        kind_bc(tensors[6]) {}

  Tensor q, k, value, log_decay, a, b, kind_bc;

  template <class Number>
  static TokenRows<Number> rows(const Tensor& x, std::int64_t i, std::int64_t n) {
    if (!x.defined()) return {};
    return {x.data_ptr<float>() + i * x.stride(0) + n * x.stride(1), x.stride(2)};
  }
  HeadStates head(std::int64_t i, std::int64_t n) const {
    const auto rows_of = [&](const Tensor& x) { return rows<const float>(x, i, n); };
    return {.tokens = k.size(2),
            .key_width = k.size(3),
            .value_width = value.size(3),
            .decay_width = log_decay.defined() ? log_decay.size(3) : 0,
            .q = rows_of(q),
            .k = rows_of(k),
            .value = rows_of(value),
            .log_decay = rows_of(log_decay),
            .a = rows_of(a),
            .b = rows_of(b),
            .kinds = kind_bc.defined()
                         ? reinterpret_cast<const StateToken*>(kind_bc.data_ptr<std::uint8_t>()) + i * k.size(2)
                         : nullptr};
  }

  // Calls compute(i, n, room) for head n of sequence i, on LibTorch's threads.
  template <class Compute>
  void for_heads(const Compute& compute) const {
    constexpr std::int64_t numbers_worth_a_thread = 1 << 16;
    const auto heads = k.size(1);
    const auto numbers = std::max<std::int64_t>(1, k.size(2) * head(0, 0).state_size());
    at::parallel_for(0, k.size(0) * heads, std::max<std::int64_t>(1, numbers_worth_a_thread / numbers),
                     [&](std::int64_t begin, std::int64_t end) {
                       static thread_local std::vector<float> room;
                       for (auto i = begin; i < end; ++i) compute(i / heads, i % heads, room);
                     });
  }
};

// Returns o, and the states after the last token. If defined, `kept_bnmkv` gets the states before every
// tokens_between_states tokens.
Tensors mix_heads(const StateOperands& in, const Tensor& state_bnkv, const Tensor& kept_bnmkv) {
  const auto o_bncv = empty_by_token(in.value), last_bnkv = state_bnkv.clone();
  in.for_heads([&](std::int64_t i, std::int64_t n, std::vector<float>& room) {
    mix_head_states(in.head(i, n), last_bnkv[i][n].data_ptr<float>(), StateOperands::rows<float>(o_bncv, i, n),
                    kept_bnmkv.defined() ? kept_bnmkv[i][n].data_ptr<float>() : nullptr, room);
  });
  return {o_bncv, last_bnkv};
}

Tensors mix_heads_backward(const Backward& pass) {
  const StateOperands in(pass.saved);
  const auto& kept_bnmkv = pass.saved[7];
  const auto do_bncv = with_features_together(pass.dy[0]);
  const auto dstate_bnkv = pass.dy[1].clone(torch::MemoryFormat::Contiguous);
  const auto gradient = [](const Tensor& x) { return x.defined() ? empty_by_token(x).zero_() : Tensor(); };
  const Tensors d = {
      gradient(in.q), gradient(in.k), gradient(in.value), pass.needs(3) ? gradient(in.log_decay) : Tensor(),
      gradient(in.a), gradient(in.b), dstate_bnkv};
  in.for_heads([&](std::int64_t i, std::int64_t n, std::vector<float>& room) {
    const auto to = [&](std::size_t input) { return StateOperands::rows<float>(d[input], i, n); };
    mix_head_states_backward(in.head(i, n), kept_bnmkv[i][n].data_ptr<float>(), dstate_bnkv[i][n].data_ptr<float>(),
                             {.o = StateOperands::rows<const float>(do_bncv, i, n),
                              .q = to(0),
                              .k = to(1),
                              .value = to(2),
                              .log_decay = to(3),
                              .a = to(4),
                              .b = to(5)},
                             room);
  });
  return d;
}

Tensor kinds_of_tokens(const Tensor& segment_bc, const Tensor& before_b) {
  const auto filled_bc = filled_segments(segment_bc, before_b);
  const auto earlier_bc = torch::cat({before_b.unsqueeze(1), filled_bc.narrow(1, 0, filled_bc.size(1) - 1)}, 1);
  return (filled_bc != earlier_bc)
      .to(torch::kByte)
      .masked_fill(segment_bc < 0, static_cast<std::uint8_t>(StateToken::padding))
      .contiguous();
}

Tensor mix_by_kernels(const Steps& steps, StateMemory& memory) {
  Tensors inputs = {steps.q, steps.k, steps.value, steps.log_decay, steps.a, steps.b};
  for (auto& x : inputs)
    if (x.defined()) x = with_features_together(x);
  auto operands = inputs;
  operands.push_back(steps.has_segments() ? kinds_of_tokens(steps.segment_bc, memory.segment_b) : Tensor());
  const StateOperands in(operands);
  const auto values = in.value.size(3), columns = in.head(0, 0).columns();
  const auto state_bnvk = memory.state_bnvk.defined() ? memory.state_bnvk : empty_state(steps);
  inputs.push_back(torch::constant_pad_nd(state_bnvk, {0, 0, 0, columns - values}).transpose(2, 3).contiguous());
  Tensor kept_bnmkv;
  if (torch::autograd::compute_requires_grad(inputs)) {
    const auto chunks = (in.k.size(2) + tokens_between_states - 1) / tokens_between_states;
    kept_bnmkv = torch::empty({in.k.size(0), in.k.size(1), chunks, in.k.size(3), columns}, in.k.options());
  }
  const auto results = own_nodes(
      "StateMixing", inputs,
      [&](Tensors& saved) {
        saved = operands;
        saved.push_back(kept_bnmkv);
        return mix_heads(in, inputs.back(), kept_bnmkv);
      },
      mix_heads_backward);
  memory.state_bnvk = results[1].narrow(3, 0, values).transpose(2, 3).contiguous();
  return results[0];
}

template <class Mix>
Tensor in_wide_type(const StateSteps& given, StateMemory& memory, const Mix& mix) {
  // Products of states are not rounded to a narrow type.
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  const auto& segment_bc = given.segment_bc;
  if (segment_bc.defined() && !memory.segment_b.defined()) memory.segment_b = first_segment_b(segment_bc);
  const auto o = mix(given, memory);
  if (segment_bc.defined())
    memory.segment_b = filled_segments(segment_bc, memory.segment_b).select(1, segment_bc.size(1) - 1);
  return o.to(given.value_bncv.scalar_type());
}

}  // namespace

std::int64_t tokens_of_chunk(std::int64_t tokens) { return std::clamp<std::int64_t>(tokens, 1, most_tokens_of_chunk); }

Tensor mix_states_by_kernels(const StateSteps& steps, StateMemory& memory) {
  return in_wide_type(steps, memory,
                      [](const auto& given, auto& into) { return mix_by_kernels(widened(given), into); });
}

Tensor mix_states_in_chunks(const StateSteps& steps, StateMemory& memory) {
  return in_wide_type(steps, memory, [](const auto& given, auto& into) { return mix_chunks(prepared(given), into); });
}

Tensor mix_states_by_token(const StateSteps& steps, StateMemory& memory) {
  return in_wide_type(steps, memory, [](const auto& given, auto& into) { return mix_tokens(prepared(given), into); });
}

Tensor mix_states(const StateSteps& steps, StateMemory& memory) {
  const auto& k = steps.k_bnck;
  if (k.is_cpu() && k.scalar_type() != torch::kDouble) return mix_states_by_kernels(steps, memory);
  return (k.size(2) == 1 ? mix_states_by_token : mix_states_in_chunks)(steps, memory);
}

}  // namespace metaformer
