#include "attention/lsh.h"

#include <ATen/autocast_mode.h>

#include <cmath>
#include <limits>

#include "attention/mixer.h"
#include "cpu/hashed_attention.h"
#include "ops/attention.h"
#include "ops/dropout.h"
#include "ops/kernel.h"

namespace metaformer {

using torch::Tensor;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The first place of each round, 0, c, 2 c ...: [r, 1].
Tensor first_places_r1(const Tensor& of_bnrc) {
  return torch::arange(of_bnrc.size(2), of_bnrc.options()).unsqueeze(1) * of_bnrc.size(3);
}

// The rows of x_bnfk at the indices index_bnrc: [b, n, r c, k].
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

// The kernel of cpu/hashed_attention.h as a node of the graph.
struct HashedOperands {
  Tensor q, v, t, log_sum_bnc, bucket_bnrc, segment_bc;
  LshRule rule;
  std::int64_t buckets = 0;
  Tensor dt = {}, dq = {}, dv = {};

  HashedHead head(std::int64_t b, std::int64_t n) const {
    const auto heads = q.size(1), tokens = q.size(2), rounds = bucket_bnrc.size(2);
    const auto number = b * heads + n;
    return {.causal = rule.causal,
            .same_bucket = rule.same_bucket,
            .tokens = tokens,
            .rounds = rounds,
            .chunk = rule.chunk,
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

  // Computes backward if dt is defined, otherwise forward.
  void compute() const {
    const auto heads = q.size(1);
    at::parallel_for(0, q.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      static thread_local HeadWorkspace workspace;
      for (auto i = begin; i < end; ++i)
        (dt.defined() ? attend_hashed_backward : attend_hashed)(head(i / heads, i % heads), workspace,
                                                                widest_vector_code());
    });
  }
};

// Whether the kernel can compute it: float32 or bfloat16 on the CPU, without dropout and correction of duplicates, and
// with chunks that are multiples of hashed_chunk_step.
bool can_attend_hashed(const Tensor& q_bnck, const LshRule& rule, const Pass& pass) {
  const bool drops = pass.training && rule.dropout > 0;
  return !drops && !rule.correct_duplicates && fits_cpu_kernels(q_bnck) && rule.chunk % hashed_chunk_step == 0;
}

// t_bnck in the type of the values, computed in float32. Keeps its inputs, the result and a number per token and head,
// nothing for pairs of tokens. Equal inputs give equal bits, whatever the number of threads.
Tensor hashed_attention(const Tensor& q_bnck, const Tensor& value_bnck, const Tensor& bucket_bnrc,
                        const Tensor& segment_bc, const LshRule& rule) {
  const auto q = q_bnck.to(torch::kFloat), v = value_bnck.to(torch::kFloat);
  const auto buckets = bucket_bnrc.max().item<std::int64_t>() + 1;
  const auto forward = [&](Tensors& saved) {
    HashedOperands operands{.q = with_features_together(q),
                            .v = with_features_together(v),
                            .t = empty_by_token(v),
                            .log_sum_bnc = empty_per_row(q),
                            .bucket_bnrc = bucket_bnrc.contiguous(),
                            .segment_bc = segment_bc,
                            .rule = rule,
                            .buckets = buckets};
    if (segment_bc.defined()) operands.segment_bc = segment_bc.to(torch::kLong).expand({q.size(0), -1}).contiguous();
    operands.compute();
    saved = {operands.q, operands.v, operands.t, operands.log_sum_bnc, operands.bucket_bnrc, operands.segment_bc};
    return operands.t;
  };
  const auto backward = [rule, buckets](const Backward& in) -> Tensors {
    const HashedOperands operands{.q = in.saved[0],
                                  .v = in.saved[1],
                                  .t = in.saved[2],
                                  .log_sum_bnc = in.saved[3],
                                  .bucket_bnrc = in.saved[4],
                                  .segment_bc = in.saved[5],
                                  .rule = rule,
                                  .buckets = buckets,
                                  .dt = with_features_together(in.dy[0]),
                                  .dq = empty_by_token(in.saved[0]),
                                  .dv = empty_by_token(in.saved[1])};
    operands.compute();
    return {operands.dq, operands.dv};
  };
  return own_node("LSH attention", {q, v}, forward, backward).to(value_bnck.scalar_type());
}

// Queries with the keys that they look at: h windows of m queries and w keys each. In full attention h is 1, and m and
// w are the whole sequence.
struct Windows {
  Tensor q_bnhmk, k_bnhwk, value_bnhwk;
  Tensor visible_bnhmw;
  Tensor count_bnhmw;  // how often a query sees a key in all rounds; undefined: not needed
};

// For every query the weighted mean of the values that it sees, and the logarithm of the softmax's denominator,
// -infinity if it sees nothing.
struct WindowResult {
  Tensor t_bnhmk, log_sum_bnhm;
};

// The softmax over the last dimension, and the logarithm of its denominator: the largest score minus the logarithm of
// its softmax. Keeps only the softmax.
Tensors softmax_with_log_sum(const Tensor& score) {
  const auto forward = [&](Tensors& saved) -> Tensors {
    const auto weight = torch::softmax(score, -1);
    saved = {weight};
    return {weight, score.amax(-1) - weight.amax(-1).log()};
  };
  return own_nodes("LSH attention", {score}, forward, [](const Backward& in) -> Tensors {
    const auto& weight = in.saved[0];
    auto dscore = at::_softmax_backward_data(in.dy[0], weight, -1, weight.scalar_type());
    return {dscore.addcmul_(weight, in.dy[1].unsqueeze(-1))};
  });
}

WindowResult attend(const Windows& in, double dropout_probability, Pass& pass) {
  auto score = torch::matmul(in.q_bnhmk, in.k_bnhwk.transpose(3, 4));
  const auto type = score.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  score = score.to(type);
  if (in.count_bnhmw.defined()) score = score - in.count_bnhmw.to(type).clamp_min(1).log();
  const auto hidden_bnhmw = in.visible_bnhmw.logical_not();
  const auto sees_nothing_bnhm1 = hidden_bnhmw.all(4, true);
  // Rows that see nothing are not masked, so that they stay finite; they do not count in the result.
  score = score.masked_fill(hidden_bnhmw != sees_nothing_bnhm1, -infinity);
  const auto normalised = softmax_with_log_sum(score);
  const auto weight = dropout(normalised[0], dropout_probability, pass).to(in.value_bnhwk.scalar_type());
  return {torch::matmul(weight, in.value_bnhwk), normalised[1].masked_fill(sees_nothing_bnhm1.squeeze(4), -infinity)};
}

// Sum over rounds of softmax_r(log_sum) t. A token that sees nothing in any round gets its own value, padding zeros.
Tensor combine(const Tensor& t_bnrck, const Tensor& log_sum_bnrc, const Tensor& value_bnck, const Tensor& segment_bc) {
  const auto alone_bn1c = (log_sum_bnrc == -infinity).all(2, true);
  const auto weight_bnrc = torch::softmax(log_sum_bnrc.masked_fill(alone_bn1c, 0), 2);
  const auto t_bnck = (t_bnrck * weight_bnrc.unsqueeze(4).to(t_bnrck.scalar_type())).sum(2);
  auto own_bnck = value_bnck.to(t_bnck.scalar_type());
  if (segment_bc.defined()) own_bnck = own_bnck * (segment_bc >= 0).unsqueeze(1).unsqueeze(3);
  return torch::where(alone_bn1c.squeeze(2).unsqueeze(3), own_bnck, t_bnck);
}

// Whether a query sees a key, [..., m, w], from their positions [..., m] and [..., w], and their segments of the same
// shapes, or undefined.
Tensor visible_mw(const Tensor& query_m, const Tensor& key_w, const Tensor& query_segment_m,
                  const Tensor& key_segment_w, bool causal) {
  const auto query_m1 = query_m.unsqueeze(-1), key_1w = key_w.unsqueeze(-2);
  auto visible = causal ? key_1w < query_m1 : key_1w != query_m1;
  if (query_segment_m.defined()) {
    const auto segment_m1 = query_segment_m.unsqueeze(-1);
    visible = visible.logical_and((segment_m1 == key_segment_w.unsqueeze(-2)).logical_and(segment_m1 >= 0));
  }
  return visible;
}

Tensor attend_in_full(const Tensor& q_bnck, const Tensor& k_bnck, const Tensor& value_bnck, const Tensor& segment_bc,
                      const LshRule& rule, Pass& pass) {
  const auto position_111c = torch::arange(q_bnck.size(2), q_bnck.options().dtype(torch::kLong)).view({1, 1, 1, -1});
  const auto segment_b11c = segment_bc.defined() ? segment_bc.unsqueeze(1).unsqueeze(1) : segment_bc;
  const auto result =
      attend({.q_bnhmk = q_bnck.unsqueeze(2),
              .k_bnhwk = k_bnck.unsqueeze(2),
              .value_bnhwk = value_bnck.unsqueeze(2),
              .visible_bnhmw = visible_mw(position_111c, position_111c, segment_b11c, segment_b11c, rule.causal)},
             rule.dropout, pass);
  return combine(result.t_bnhmk, result.log_sum_bnhm, value_bnck, segment_bc);
}

// The sorted tokens of all rounds, concatenated, in chunks of m.
class SortedRounds {
 public:
  SortedRounds(const Tensor& bucket_bnrc, const LshRule& rule)
      : rule_(rule), bucket_bnrc_(bucket_bnrc), rounds_(bucket_bnrc.size(2)), tokens_(bucket_bnrc.size(3)) {
    const auto place_c = torch::arange(tokens_, bucket_bnrc.options());
    token_bnrc_ = (bucket_bnrc * tokens_ + place_c).argsort(-1, /*descending=*/false);
    const auto place_bnrc = torch::empty_like(token_bnrc_).scatter_(3, token_bnrc_, place_c.expand_as(token_bnrc_));
    place_bnrc_ = place_bnrc + first_places_r1(bucket_bnrc);
  }

  Windows windows(const Tensor& q_bnck, const Tensor& k_bnck, const Tensor& value_bnck,
                  const Tensor& segment_bc) const {
    const auto position_bnhm = chunked(token_bnrc_.flatten(2));
    Tensor segment_bnhm, key_segment_bnhw;
    if (segment_bc.defined()) {
      segment_bnhm =
          chunked(segment_bc.unsqueeze(1).expand({-1, token_bnrc_.size(1), -1}).gather(2, token_bnrc_.flatten(2)));
      key_segment_bnhw = looked_at(segment_bnhm);
    }
    const auto position_bnhw = looked_at(position_bnhm);
    auto visible = visible_mw(position_bnhm, position_bnhw, segment_bnhm, key_segment_bnhw, rule_.causal);
    if (rule_.same_bucket) {
      const auto bucket_bnhm = chunked(bucket_of_round().gather(3, token_bnrc_).flatten(2));
      visible = visible.logical_and(bucket_bnhm.unsqueeze(4) == looked_at(bucket_bnhm).unsqueeze(3));
    }
    return {.q_bnhmk = sorted(q_bnck),
            .k_bnhwk = looked_at(sorted(k_bnck)),
            .value_bnhwk = looked_at(sorted(value_bnck)),
            .visible_bnhmw = visible,
            .count_bnhmw = rule_.correct_duplicates ? count(position_bnhm, position_bnhw) : Tensor()};
  }

  // [b, n, h, m, k] back to the order of tokens, [b, n, r, c, k].
  Tensor by_token(const Tensor& x_bnhmk) const {
    const auto x_bnsk = x_bnhmk.flatten(2, 3);
    return own_node(
        "a sort of vectors", {x_bnsk}, [&](Tensors&) { return by_order(rows_at(x_bnsk, place_bnrc_), place_bnrc_); },
        [token_bnrc = token_bnrc_](const Backward& in) -> Tensors {
          return {rows_at(in.dy[0].flatten(2, 3), token_bnrc + first_places_r1(token_bnrc))};
        });
  }

 private:
  // x_bnck -> [b, n, h, m, k]. Forward and backward copy rows.
  Tensor sorted(const Tensor& x_bnck) const {
    return chunked(own_node(
        "a sort of vectors", {x_bnck}, [&](Tensors&) { return rows_at(x_bnck, token_bnrc_); },
        [place_bnrc = place_bnrc_](const Backward& in) -> Tensors {
          return {by_order(rows_at(in.dy[0], place_bnrc), place_bnrc).sum(2)};
        }));
  }

  Tensor chunked(const Tensor& x_bns) const { return x_bns.unflatten(2, {-1, rule_.chunk}); }

  std::int64_t chunks() const { return rounds_ * tokens_ / rule_.chunk; }
  // With two chunks the previous one is also the next one.
  bool looks_ahead() const { return !rule_.causal && chunks() > 2; }
  Tensor looked_at(const Tensor& x_bnhm) const {
    std::vector<Tensor> parts = {x_bnhm.roll(1, 2), x_bnhm};
    if (looks_ahead()) parts.push_back(x_bnhm.roll(-1, 2));
    return torch::cat(parts, 3);
  }

  // Bucket numbers that differ between rounds.
  Tensor bucket_of_round() const {
    const auto round_r1 = torch::arange(rounds_, bucket_bnrc_.options()).unsqueeze(1);
    return bucket_bnrc_ * rounds_ + round_r1;
  }

  // A chunk looks at its own round; the first chunk of a round also at the previous round and, when looking ahead, the
  // last one also at the next round.
  bool are_neighbours(std::int64_t apart) const { return apart <= 1 || (looks_ahead() && apart == rounds_ - 1); }

  // Counts the copies of a key, one for each round, that a copy of the query looks at.
  Tensor count(const Tensor& position_bnhm, const Tensor& position_bnhw) const {
    const auto chunk_bnrc = place_bnrc_.floor_divide(rule_.chunk);
    const auto at = [](const Tensor& of_tokens_bnc, const Tensor& position_bnhm) {
      return of_tokens_bnc.gather(2, position_bnhm.flatten(2)).view(position_bnhm.sizes());
    };
    const auto bucket_bnrc = bucket_of_round();
    auto count_bnhmw = torch::zeros({}, position_bnhm.options());
    for (std::int64_t round = 0; round < rounds_; ++round) {
      const auto query_bnhm1 = at(chunk_bnrc.select(2, round), position_bnhm).unsqueeze(4);
      for (std::int64_t other = 0; other < rounds_; ++other) {
        if (rule_.same_bucket && other != round) continue;
        if (const auto apart = (round - other + rounds_) % rounds_; !are_neighbours(apart)) continue;
        const auto back =
            (query_bnhm1 - at(chunk_bnrc.select(2, other), position_bnhw).unsqueeze(3)).remainder(chunks());
        auto seen = back <= 1;
        if (looks_ahead()) seen = seen.logical_or(back == chunks() - 1);
        if (rule_.same_bucket) {
          const auto of_round_bnc = bucket_bnrc.select(2, round);
          seen = seen.logical_and(at(of_round_bnc, position_bnhm).unsqueeze(4) ==
                                  at(of_round_bnc, position_bnhw).unsqueeze(3));
        }
        count_bnhmw = count_bnhmw + seen;
      }
    }
    return count_bnhmw;
  }

  const LshRule& rule_;
  Tensor bucket_bnrc_;
  std::int64_t rounds_, tokens_;
  Tensor token_bnrc_;  // which token stands at each place of a round
  Tensor place_bnrc_;  // where each token stands in each round, 0 ... r c - 1
};

}  // namespace

Tensor lsh_buckets_bnrc(const Tensor& q_bnck, const Tensor& rotation_nkri) {
  constexpr std::int64_t tokens_at_once = 1024;  // their products with all rotations fit into a cache
  const torch::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  const auto type = q_bnck.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const auto rotation = rotation_nkri.to(type);
  std::vector<Tensor> buckets;
  for (const auto& part_bnck : q_bnck.split(tokens_at_once, 2)) {
    const auto rotated_bncri = torch::einsum("bnck,nkri->bncri", {part_bnck.to(type), rotation});
    const auto [most, at_most] = rotated_bncri.max(4);
    const auto [least, at_least] = rotated_bncri.min(4);
    buckets.push_back(torch::where(most >= -least, at_most, at_least + rotation.size(3)).transpose(2, 3));
  }
  return torch::cat(buckets, 3);
}

Tensor lsh_attention(const Tensor& q_bnck, const Tensor& value_bnck, const Tensor& bucket_bnrc,
                     const Tensor& segment_bc, const LshRule& rule, Pass& pass) {
  const auto tokens = q_bnck.size(2);
  const auto keys = [&] { return q_bnck / q_bnck.norm(2, 3, true).clamp_min(1e-12); };
  if (tokens <= rule.chunk) return attend_in_full(q_bnck, keys(), value_bnck, segment_bc, rule, pass);
  if (can_attend_hashed(q_bnck, rule, pass)) return hashed_attention(q_bnck, value_bnck, bucket_bnrc, segment_bc, rule);
  const auto missing = (tokens + rule.chunk - 1) / rule.chunk * rule.chunk - tokens;
  const auto padded = [&](const Tensor& x, torch::IntArrayRef places, std::int64_t value) {  // so that chunks are full
    return missing == 0 ? x : torch::constant_pad_nd(x, places, value);
  };
  auto segments = segment_bc;
  if (missing > 0 && !segments.defined())
    segments = torch::zeros({1, tokens}, bucket_bnrc.options()).expand({q_bnck.size(0), -1});
  auto bucket = bucket_bnrc;
  if (segments.defined()) {
    // Padding goes into an extra bucket behind all others.
    const auto last = std::numeric_limits<std::int32_t>::max();
    bucket = padded(bucket.masked_fill((segments < 0).unsqueeze(1).unsqueeze(2), last), {0, missing}, last);
    segments = padded(segments, {0, missing}, -1);
  }
  const auto by_token = [&](const Tensor& x_bnck) { return padded(x_bnck, {0, 0, 0, missing}, 0); };
  const auto q = by_token(q_bnck), k = by_token(keys()), value = by_token(value_bnck);
  const SortedRounds rounds(bucket, rule);
  const auto result = attend(rounds.windows(q, k, value, segments), rule.dropout, pass);
  return combine(rounds.by_token(result.t_bnhmk), rounds.by_token(result.log_sum_bnhm.unsqueeze(4)).squeeze(4), value,
                 segments)
      .narrow(2, 0, tokens);
}

Tensor hash_and_attend(const Tensor& q_bnck, const Tensor& value_bnck, const LshOptions& options, std::int64_t context,
                       double dropout, const Visibility& visibility, Pass& pass) {
  const LshRule rule{.chunk = options.chunk,
                     .causal = visibility.causal,
                     .same_bucket = options.visible == LshVisible::bucket,
                     .correct_duplicates = options.correct_duplicates,
                     .dropout = dropout};
  Tensor bucket_bnrc;
  if (q_bnck.size(2) > options.chunk) {
    const auto fixed_key = torch::zeros({1}, q_bnck.options().dtype(torch::kLong));
    const auto draw = pass.training ? pass.random.next() : RandomDraw{.key = fixed_key};
    const auto half_buckets = options.bucket_count(context) / 2;
    bucket_bnrc = pass.chosen([&] {
      const auto rotation = random_normal(draw, {q_bnck.size(1), q_bnck.size(3), options.rounds, half_buckets});
      return lsh_buckets_bnrc(q_bnck, rotation);
    });
  }
  return lsh_attention(q_bnck, value_bnck, bucket_bnrc, visibility.key_segment_be, rule, pass);
}

// LSH attention (Reformer, Kitaev, Kaiser and Levskaya 2020). The tokens that a token sees depend on all tokens of its
// sequence, also on later ones: it never attends to a later token, but other later tokens may change which earlier ones
// it sees. In generation each new token is computed as the last of the sequence so far.

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

  Tensor forward(const Tensor& x_bcd, const Tensor& context_bed, const Visibility& visibility, MixerState* state,
                 Pass& pass) override {
    TORCH_CHECK(context_bed.is_same(x_bcd), "LSH attention has one projection for queries and keys: it cannot cross");
    const auto halves = projection_(x_bcd).chunk(2, 2);
    auto q_bnek = split_heads(halves[0], shape_.heads), value_bnek = split_heads(halves[1], shape_.heads);
    if (state != nullptr) {
      q_bnek = state->extend(0, q_bnek);
      value_bnek = state->extend(1, value_bnek);
    }
    const auto tokens = q_bnek.size(2), newest = x_bcd.size(1);
    const auto t_bnek = hash_and_attend(q_bnek, value_bnek, options_, shape_.context, shape_.dropout, visibility, pass);
    return output_(merge_heads(t_bnek.narrow(2, tokens - newest, newest)));
  }

  // Var(q . k / |k|) is the variance of a projection.
  void scale_initial_scores(double projection_variance) override {
    projection_->weight().narrow(0, 0, shape_.width).mul_(options_.score_std / std::sqrt(projection_variance));
  }

  MixerCost cost(const MixerLoad& load) const override {
    const auto real = [](std::int64_t count) { return static_cast<double>(count); };
    const auto d = shape_.width, n = shape_.heads, chunk = options_.chunk, rounds = options_.rounds,
               seen = load.context <= chunk ? load.context : rounds * 2 * chunk;
    const bool hashes = load.context > chunk;
    const auto rotated = real(rounds * options_.bucket_count(shape_.context)) / 2;
    // The kernel keeps a token's buckets and a number for each head. For every round operators keep a query, two keys
    // and two values (of the window), and the result, and besides weights with a byte of mask for each.
    const bool has_kernel =
        hashes && chunk % hashed_chunk_step == 0 && !options_.correct_duplicates && shape_.dropout == 0;
    const auto copies = hashes ? 6 * rounds : 0, pairs = n * seen;
    const auto of_operators = copies * d + pairs + pairs / 4 + (shape_.dropout > 0 ? pairs : 0);
    return {.operations = 6 * load.tokens * real(d) * real(d) + (hashes ? 2 * load.tokens * real(d) * rotated : 0) +
                          4 * load.tokens * real(seen) * real(d),
            .activations = 5 * d + (has_kernel ? (2 * rounds + 1) * n : of_operators)};
  }

 private:
  LshOptions options_;
  MixerShape shape_;
  Linear projection_;  // rows: queries, which are also keys, then values
  Linear output_;
};

}  // namespace

std::shared_ptr<Mixer> LshOptions::make(const MixerShape& shape) const { return std::make_shared<Lsh>(*this, shape); }

}  // namespace metaformer
