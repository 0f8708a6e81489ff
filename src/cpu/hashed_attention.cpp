#include "cpu/hashed_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/attention_products.h"

namespace metaformer {

using namespace host_kernel;

namespace {

constexpr float smallest_norm = 1e-12F;

METAFORMER_INLINE IntLanes load_ints(const std::int32_t* from) {
  IntLanes x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
METAFORMER_INLINE IntLanes every_int(std::int32_t x) { return IntLanes{} + x; }

METAFORMER_INLINE float* row(const HeadRows& rows, std::int64_t token) {
  return static_cast<float*>(rows.data) + token * rows.stride;
}

METAFORMER_INLINE void add_row(const float* from, float* to, std::int64_t width) {
  for (std::int64_t c = 0; c < width; c += lane_count) store_lanes(to + c, load_lanes(to + c) + load_lanes(from + c));
}

// A chunk of sorted tokens as keys: their vectors as rows and, for products with queries, as columns.
struct Block {
  std::int64_t number = -1;
  float *keys = nullptr, *key_columns = nullptr, *values = nullptr, *value_columns = nullptr;
  std::int32_t *token = nullptr, *segment = nullptr, *bucket = nullptr;
};

template <class Units, int Rows, int Vectors>
struct Hashed {
  const HashedHead& in;
  HeadWorkspace& workspace;
  std::int64_t m = in.chunk, padded = round_up(in.tokens, in.chunk), chunks = in.rounds * padded / in.chunk;
  std::int64_t width = round_up(std::max(in.q.width, in.v.width), lane_count);  // of keys and values
  bool looks_ahead = !in.causal && chunks > 2;  // with two chunks the one before is the one after
  std::int64_t neighbours = looks_ahead ? 3 : 2, step = neighbours * m + lane_count;
  std::array<Block, 4> blocks = {};     // of the chunk before, this one, the one behind, and the one around the end
  std::array<Block*, 3> seen = {};      // by the chunk that is being computed
  const std::int32_t* order = nullptr;  // the token at each place; in.tokens: none
  float *inverse_norm = nullptr, *queries = nullptr, *scores = nullptr;

  METAFORMER_INLINE std::int32_t* take_ints(std::int64_t count) const {
    return reinterpret_cast<std::int32_t*>(workspace.take(count));
  }

  METAFORMER_INLINE void prepare(bool backward) {
    const auto places = in.rounds * padded;
    const auto of_block = (backward ? 4 : 3) * m * width + 3 * m;
    const auto of_chunk = 3 * m * width + 2 * m * step;
    const auto of_token = backward ? 3 * width + 2 : width + 3;
    workspace.begin(places + in.buckets + 2 + 4 * of_block + of_chunk + in.tokens * of_token + 24 * lane_count);
    sort_tokens();
    inverse_norm = workspace.take(in.tokens);
    for (std::int64_t i = 0; i < in.tokens; ++i) inverse_norm[i] = 1 / std::max(norm(row(in.q, i)), smallest_norm);
    float* floats = workspace.take(4 * (backward ? 4 : 3) * m * width);
    std::int32_t* ints = take_ints(4 * 3 * m);
    for (auto& block : blocks) {
      block.keys = floats;
      block.key_columns = floats + m * width;
      block.values = floats + 2 * m * width;
      block.value_columns = backward ? floats + 3 * m * width : nullptr;
      floats += (backward ? 4 : 3) * m * width;
      block.token = ints;
      block.segment = ints + m;
      block.bucket = ints + 2 * m;
      ints += 3 * m;
    }
    queries = workspace.take(m * width);
    scores = workspace.take(m * step);
  }

  METAFORMER_INLINE float norm(const float* x) const {
    float squares = 0;
    for (std::int64_t c = 0; c < in.q.width; ++c) squares += x[c] * x[c];
    return std::sqrt(squares);
  }

  // By bucket, then by place; padding behind all others.
  METAFORMER_INLINE void sort_tokens() {
    auto* sorted = take_ints(in.rounds * padded);
    auto* next = take_ints(in.buckets + 2);
    for (std::int64_t r = 0; r < in.rounds; ++r, sorted += padded) {
      const auto* bucket = in.bucket + r * in.tokens;
      const auto bucket_of = [&](std::int64_t i) { return is_padding(i) ? in.buckets : bucket[i]; };
      std::fill_n(next, in.buckets + 2, 0);
      for (std::int64_t i = 0; i < in.tokens; ++i) ++next[bucket_of(i) + 1];
      for (std::int64_t b = 0; b < in.buckets + 1; ++b) next[b + 1] += next[b];
      for (std::int64_t i = 0; i < in.tokens; ++i) sorted[next[bucket_of(i)]++] = static_cast<std::int32_t>(i);
      std::fill(sorted + in.tokens, sorted + padded, static_cast<std::int32_t>(in.tokens));
    }
    order = sorted - in.rounds * padded;
  }

  METAFORMER_INLINE bool exists(std::int64_t token) const { return token < in.tokens; }
  METAFORMER_INLINE bool is_padding(std::int64_t token) const { return in.segment != nullptr && in.segment[token] < 0; }

  // Vectors of the chunk's tokens, times `factor` of each where that is given; zeros where there is none.
  METAFORMER_INLINE void gather(const HeadRows& from, const float* factor, const std::int32_t* token, float* to) const {
    for (std::int64_t p = 0; p < m; ++p, to += width) {
      std::fill_n(to, width, 0.0F);
      if (!exists(token[p])) continue;
      const float* x = row(from, token[p]);
      const float times = factor != nullptr ? factor[token[p]] : 1;
      for (std::int64_t c = 0; c < from.width; ++c) to[c] = times * x[c];
    }
  }

  METAFORMER_INLINE void turn(const float* rows, float* columns) const {
    for (std::int64_t p = 0; p < m; p += lane_count)
      for (std::int64_t c = 0; c < width; c += lane_count)
        transpose_block(rows + p * width + c, width, columns + c * m + p, m);
  }

  METAFORMER_INLINE Block* block_of(std::int64_t number, std::size_t slot) {
    auto& block = blocks[slot];
    if (block.number == number) return &block;
    block.number = number;
    for (std::int64_t p = 0; p < m; ++p) {
      const auto place = number * m + p, round = place / padded;
      const auto token = order[place];
      block.token[p] = token;
      block.segment[p] = !exists(token) ? -1 : in.segment != nullptr ? static_cast<std::int32_t>(in.segment[token]) : 0;
      block.bucket[p] =
          exists(token) ? static_cast<std::int32_t>(in.bucket[round * in.tokens + token] * in.rounds + round) : -1;
    }
    gather(in.q, inverse_norm, block.token, block.keys);
    gather(in.v, nullptr, block.token, block.values);
    turn(block.keys, block.key_columns);
    if (block.value_columns != nullptr) turn(block.values, block.value_columns);
    return &block;
  }

  METAFORMER_INLINE void look(std::int64_t chunk) {
    constexpr std::size_t around_the_end = 3;
    const auto slot = [](std::int64_t number) { return static_cast<std::size_t>(number % 3); };
    seen[0] = chunk > 0 ? block_of(chunk - 1, slot(chunk - 1)) : block_of(chunks - 1, around_the_end);
    seen[1] = block_of(chunk, slot(chunk));
    if (!looks_ahead) return;
    seen[2] = chunk + 1 < chunks ? block_of(chunk + 1, slot(chunk + 1)) : block_of(0, around_the_end);
  }

  // left [m, width] times the columns of every block seen.
  METAFORMER_INLINE void multiply_seen(const float* left, float* Block::*columns, float* product) const {
    for (std::int64_t b = 0; b < neighbours; ++b)
      multiply<Units, Rows, Vectors, false>(m, m, width, {left, width, 1}, seen[static_cast<std::size_t>(b)]->*columns,
                                            m, product + b * m, step);
  }

  // -infinity where query p does not see a key; false where it can see none.
  METAFORMER_INLINE bool mask(std::int64_t p) const {
    const auto token = seen[1]->token[p], segment = seen[1]->segment[p], bucket = seen[1]->bucket[p];
    if (!exists(token) || segment < 0) return false;
    const auto below = every_int(in.causal ? token : static_cast<std::int32_t>(in.tokens));
    for (std::int64_t b = 0; b < neighbours; ++b) {
      const auto& block = *seen[static_cast<std::size_t>(b)];
      float* score = scores + p * step + b * m;
      for (std::int64_t j = 0; j < m; j += lane_count) {
        const auto other = load_ints(block.token + j);
        auto visible = (other < below) & (other != every_int(token));
        if (in.segment != nullptr) visible &= load_ints(block.segment + j) == every_int(segment);
        if (in.same_bucket) visible &= load_ints(block.bucket + j) == every_int(bucket);
        store_lanes(score + j, visible ? load_lanes(score + j) : every_lane(-infinity));
      }
    }
    return true;
  }

  METAFORMER_INLINE void score_chunk(std::int64_t chunk) {
    look(chunk);
    gather(in.q, nullptr, seen[1]->token, queries);
    multiply_seen(queries, &Block::key_columns, scores);
  }

  // Of all rounds so far: the greatest score, the sum of exponentials relative to it, and the sum of values that they
  // weigh.
  METAFORMER_INLINE void forward() {
    prepare(/*backward=*/false);
    float *greatest = workspace.take(in.tokens), *sum = workspace.take(in.tokens),
          *mixed = workspace.take(in.tokens * width);
    float* of_chunk = workspace.take(m * width);
    std::fill_n(greatest, in.tokens, -infinity);
    std::fill_n(sum, in.tokens, 0.0F);
    std::fill_n(mixed, in.tokens * width, 0.0F);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      score_chunk(chunk);
      for (std::int64_t p = 0; p < m; ++p) {
        float* score = scores + p * step;
        const auto token = seen[1]->token[p];
        const float most =
            mask(p) ? std::max(greatest_of(greatest_lanes(score, neighbours * m)), greatest[token]) : -infinity;
        if (most == -infinity) {
          std::fill_n(score, neighbours * m, 0.0F);
          continue;
        }
        Lanes total = {};
        for (std::int64_t j = 0; j < neighbours * m; j += lane_count) {
          const Lanes e = exp_of(load_lanes(score + j) - most);
          total += e;
          store_lanes(score + j, e);
        }
        const float before = greatest[token] == -infinity ? 0 : std::exp(greatest[token] - most);
        greatest[token] = most;
        sum[token] = sum[token] * before + sum_of(total);
        float* x = mixed + token * width;
        for (std::int64_t c = 0; c < width; c += lane_count) store_lanes(x + c, load_lanes(x + c) * before);
      }
      mix_chunk(of_chunk, mixed);
    }
    finish(greatest, sum, mixed);
  }

  // Adds the weighted values of the chunk's queries to theirs.
  METAFORMER_INLINE void mix_chunk(float* of_chunk, float* mixed) const {
    for (std::int64_t b = 0; b < neighbours; ++b) {
      const Left left = {scores + b * m, step, 1};
      const float* values = seen[static_cast<std::size_t>(b)]->values;
      if (b == 0)
        multiply<Units, Rows, Vectors, false>(m, width, m, left, values, width, of_chunk, width);
      else
        multiply<Units, Rows, Vectors, true>(m, width, m, left, values, width, of_chunk, width);
    }
    for (std::int64_t p = 0; p < m; ++p)
      if (const auto token = seen[1]->token[p]; exists(token))
        add_row(of_chunk + p * width, mixed + token * width, width);
  }

  METAFORMER_INLINE void finish(const float* greatest, const float* sum, const float* mixed) const {
    for (std::int64_t i = 0; i < in.tokens; ++i) {
      const bool sees_nothing = sum[i] == 0;
      in.log_sum[i] = sees_nothing ? infinity : greatest[i] + std::log(sum[i]);
      float* t = row(in.t, i);
      if (is_padding(i))
        std::fill_n(t, in.t.width, 0.0F);
      else if (sees_nothing)
        std::copy_n(row(in.v, i), in.t.width, t);
      else
        for (std::int64_t c = 0; c < in.t.width; ++c) t[c] = mixed[i * width + c] / sum[i];
    }
  }

  METAFORMER_INLINE void backward() {
    prepare(/*backward=*/true);
    float* sums = workspace.take(3 * in.tokens * width);
    float *dq = sums, *dk = sums + in.tokens * width, *dv = sums + 2 * in.tokens * width;
    std::fill_n(sums, 3 * in.tokens * width, 0.0F);
    float *dt = workspace.take(m * width), *dscores = workspace.take(m * step), *of_chunk = workspace.take(m * width);
    float* delta = workspace.take(in.tokens);
    for (std::int64_t i = 0; i < in.tokens; ++i) {
      delta[i] = 0;
      for (std::int64_t c = 0; c < in.t.width; ++c) delta[i] += row(in.dt, i)[c] * row(in.t, i)[c];
    }
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      score_chunk(chunk);
      gather(in.dt, nullptr, seen[1]->token, dt);
      multiply_seen(dt, &Block::value_columns, dscores);
      for (std::int64_t p = 0; p < m; ++p) differentiate(p, delta, dscores);
      for (std::int64_t b = 0; b < neighbours; ++b) {
        const auto& block = *seen[static_cast<std::size_t>(b)];
        scatter({scores + b * m, 1, step}, dt, block.token, of_chunk, dv);
        scatter({dscores + b * m, 1, step}, queries, block.token, of_chunk, dk);
        scatter({dscores + b * m, step, 1}, block.keys, seen[1]->token, of_chunk, dq);
      }
    }
    finish_gradients(dq, dk, dv);
  }

  // Scores of query p become weights; gradients of weights become those of scores.
  METAFORMER_INLINE void differentiate(std::int64_t p, const float* delta, float* dscores) const {
    float *score = scores + p * step, *dscore = dscores + p * step;
    if (!mask(p)) {
      std::fill_n(score, neighbours * m, 0.0F);
      std::fill_n(dscore, neighbours * m, 0.0F);
      return;
    }
    const auto token = seen[1]->token[p];
    for (std::int64_t j = 0; j < neighbours * m; j += lane_count) {
      const Lanes weight = exp_of(load_lanes(score + j) - in.log_sum[token]);
      store_lanes(score + j, weight);
      store_lanes(dscore + j, weight * (load_lanes(dscore + j) - delta[token]));
    }
  }

  // Adds left right, [m, width], to the sums of these tokens.
  METAFORMER_INLINE void scatter(const Left& left, const float* right, const std::int32_t* token, float* product,
                                 float* sums) const {
    multiply<Units, Rows, Vectors, false>(m, width, m, left, right, width, product, width);
    for (std::int64_t p = 0; p < m; ++p)
      if (exists(token[p])) add_row(product + p * width, sums + token[p] * width, width);
  }

  // k = q / |q|: dq += (dk - k (k . dk)) / |q|.
  METAFORMER_INLINE void finish_gradients(const float* dq, const float* dk, const float* dv) const {
    for (std::int64_t i = 0; i < in.tokens; ++i) {
      const bool has_own_value = in.log_sum[i] == infinity && !is_padding(i);
      const float inverse = inverse_norm[i];
      const float *q = row(in.q, i), *of_key = dk + i * width;
      float along = 0;
      for (std::int64_t c = 0; c < in.q.width; ++c) along += q[c] * inverse * of_key[c];
      if (inverse * smallest_norm >= 1) along = 0;  // the norm is constant there
      for (std::int64_t c = 0; c < in.q.width; ++c)
        row(in.dq, i)[c] = dq[i * width + c] + (of_key[c] - q[c] * inverse * along) * inverse;
      for (std::int64_t c = 0; c < in.v.width; ++c)
        row(in.dv, i)[c] = dv[i * width + c] + (has_own_value ? row(in.dt, i)[c] : 0);
    }
  }
};

struct HashedRun {
  const HashedHead& head;
  HeadWorkspace& workspace;
  bool backward;

  template <class Units, int Rows, int Vectors>
  METAFORMER_INLINE void with() const {
    Hashed<Units, Rows, Vectors> hashed{head, workspace};
    backward ? hashed.backward() : hashed.forward();
  }
};

}  // namespace

void attend_hashed(const HashedHead& head, HeadWorkspace& workspace, VectorCode code) {
  run_with_vector_code(code, HashedRun{head, workspace, false});
}

void attend_hashed_backward(const HashedHead& head, HeadWorkspace& workspace, VectorCode code) {
  run_with_vector_code(code, HashedRun{head, workspace, true});
}

}  // namespace metaformer
