#include "cpu/state_mixing.h"

#include <algorithm>

#include "cpu/attention_products.h"

namespace metaformer {

using host_kernel::round_up;

namespace {

// Columns of a state that are computed together, which do not depend on the others.
template <int Vectors>
using Columns = Lanes[Vectors];

// `count` numbers, at least 1, and zeros.
template <int Vectors>
METAFORMER_INLINE void load_columns(const float* from, std::int64_t count, Columns<Vectors>& x) {
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    const auto left = std::clamp<std::int64_t>(count - v * lane_count, 0, lane_count);
    x[v] = load_some(from + v * lane_count, left);
  }
}
template <int Vectors>
METAFORMER_INLINE void store_columns(float* to, std::int64_t count, const Columns<Vectors>& x) {
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    const auto left = std::clamp<std::int64_t>(count - v * lane_count, 0, lane_count);
    store_some(to + v * lane_count, x[v], left);
  }
}

// Rows of some columns of a state.
template <class Number>
struct StateRows {
  Number* data;
  std::int64_t stride;
  METAFORMER_INLINE Number* row(std::int64_t j) const { return data + j * stride; }
};

// total += factor x, of columns in memory.
template <int Vectors>
METAFORMER_INLINE void add_product(Columns<Vectors>& total, float factor, const float* x) {
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) total[v] += factor * load_lanes(x + v * lane_count);
}

// What a token does to a state.
struct Step {
  const float *q, *k, *decay, *a, *b;
  std::int64_t width;
};

// Row j of `after`; with Read adds what the token reads of it to o.
template <int Vectors, bool Products, bool Read>
METAFORMER_INLINE void take_row(const Step& step, std::int64_t j, const float* before, float* after,
                                const Columns<Vectors>& value, const Columns<Vectors>& u, Columns<Vectors>& o) {
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) {
    Lanes x = load_lanes(before + v * lane_count) * step.decay[j] + step.k[j] * value[v];
    if constexpr (Products) x += step.b[j] * u[v];
    store_lanes(after + v * lane_count, x);
    if constexpr (Read) o[v] += step.q[j] * x;
  }
}

// after = before decay + k value^T + b u^T, u = before^T a; and o = after^T q if it is wanted. before may be after. Two
// sums take turns, as each addition waits for the one before it.
template <int Vectors, bool Products, bool Read>
METAFORMER_INLINE void take_step(const Step& step, StateRows<const float> before, StateRows<float> after,
                                 const Columns<Vectors>& value, Columns<Vectors>& u, Columns<Vectors>& o) {
  Columns<Vectors> even = {}, odd = {};
  std::int64_t j = 0;
  if constexpr (Products) {
    for (; j + 2 <= step.width; j += 2) {
      add_product<Vectors>(even, step.a[j], before.row(j));
      add_product<Vectors>(odd, step.a[j + 1], before.row(j + 1));
    }
    if (j < step.width) add_product<Vectors>(even, step.a[j], before.row(j));
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      u[v] = even[v] + odd[v];
      even[v] = odd[v] = Lanes{};
    }
  }
  for (j = 0; j + 2 <= step.width; j += 2) {
    take_row<Vectors, Products, Read>(step, j, before.row(j), after.row(j), value, u, even);
    take_row<Vectors, Products, Read>(step, j + 1, before.row(j + 1), after.row(j + 1), value, u, odd);
  }
  if (j < step.width) take_row<Vectors, Products, Read>(step, j, before.row(j), after.row(j), value, u, even);
  if constexpr (Read)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) o[v] = even[v] + odd[v];
}

// The factors by which a token lets a state decay, one for every feature of the keys.
METAFORMER_INLINE void fill_decay(const HeadStates& head, std::int64_t token, float* decay) {
  if (!head.log_decay) {
    std::fill_n(decay, head.key_width, 1.0f);
    return;
  }
  const auto* log = head.log_decay.of(token);
  for (std::int64_t j = 0; j < head.key_width; j += lane_count) {
    const auto count = std::min<std::int64_t>(lane_count, head.key_width - j);
    const auto logs = head.decay_width == 1 ? every_lane(log[0]) : load_some(log + j, count);
    store_some(decay + j, exp_of(logs), count);
  }
}

METAFORMER_INLINE Step step_of(const HeadStates& head, std::int64_t token, const float* decay) {
  return {.q = head.q.of(token),
          .k = head.k.of(token),
          .decay = decay,
          .a = head.a ? head.a.of(token) : nullptr,
          .b = head.b ? head.b.of(token) : nullptr,
          .width = head.key_width};
}

METAFORMER_INLINE StateToken kind_of(const HeadStates& head, std::int64_t token) {
  return head.kinds != nullptr ? head.kinds[token] : StateToken::goes_on;
}

// The sums of sixteen rows of sixteen numbers; a step adds neighbours.
template <int Count>
METAFORMER_INLINE Lanes sums_of_rows(const Lanes (&rows)[Count]) {
  if constexpr (Count == 1) {
    return rows[0];
  } else {
    constexpr IntLanes even = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}, odd = even + 1;
    Lanes halves[Count / 2];
#pragma GCC unroll 8
    for (int i = 0; i < Count / 2; ++i)
      halves[i] =
          __builtin_shuffle(rows[2 * i], rows[2 * i + 1], even) + __builtin_shuffle(rows[2 * i], rows[2 * i + 1], odd);
    return sums_of_rows<Count / 2>(halves);
  }
}

// Adds the sum of every row of sixteen numbers, times its factor if there are any.
METAFORMER_INLINE void add_sums(const float* rows, const float* factors, std::int64_t count, float* to) {
  for (std::int64_t j = 0; j < count; j += lane_count) {
    Lanes block[lane_count];
#pragma GCC unroll 16
    for (int i = 0; i < lane_count; ++i) block[i] = load_lanes(rows + (j + i) * lane_count);
    auto sums = sums_of_rows<lane_count>(block);
    const auto rest = std::min<std::int64_t>(lane_count, count - j);
    if (factors != nullptr) sums *= load_some(factors + j, rest);
    store_some(to + j, load_some(to + j, rest) + sums, rest);
  }
}

template <int Vectors>
METAFORMER_INLINE Lanes product(const Columns<Vectors>& x, const Columns<Vectors>& y) {
  Lanes total = x[0] * y[0];
#pragma GCC unroll 4
  for (int v = 1; v < Vectors; ++v) total += x[v] * y[v];
  return total;
}

float* room_for(std::int64_t count, std::vector<float>& workspace) {
  if (workspace.size() < static_cast<std::size_t>(count)) workspace.resize(static_cast<std::size_t>(count));
  return workspace.data();
}

// Room of the backward pass of at most `widest` columns in a chunk.
struct ChunkRoom {
  ChunkRoom(const HeadStates& head, std::vector<float>& workspace)
      : state(head.key_width * widest), padded(round_up(head.key_width, lane_count)) {
    const auto factors = tokens_between_states * padded, products = padded * lane_count;
    zeros = room_for((tokens_between_states + 2) * state + tokens_between_states * widest + factors + 4 * products,
                     workspace);
    states = zeros + state;
    u = states + (tokens_between_states + 1) * state;
    decays = u + tokens_between_states * widest;
    of_q = decays + factors;
    of_k = of_q + products;
    of_b = of_k + products;
    of_decay = of_b + products;
    std::fill_n(zeros, state, 0.0f);
    std::fill_n(of_q, 4 * products, 0.0f);
  }

  static constexpr std::int64_t widest = 2 * lane_count;
  std::int64_t state, padded;  // numbers of a state, and of the features of a key rounded up
  float *zeros, *states, *u, *decays;
  float *of_q, *of_k, *of_b, *of_decay;  // [padded, 16]: for every feature of a key products whose sum is a gradient
};

// The gradients of a step. `dstate` of what it leaves becomes that of what it found. Returns lanes whose sum is what
// the token gives to a decay of all features.
template <int Vectors, bool Products>
METAFORMER_INLINE Lanes step_back(const Step& step, StateRows<const float> before, StateRows<const float> after,
                                  StateRows<float> dstate, const Columns<Vectors>& value, const Columns<Vectors>& u,
                                  const Columns<Vectors>& dout, const ChunkRoom& room, Columns<Vectors>& dvalue,
                                  bool decays_by_feature, Columns<Vectors>& du) {
  Lanes of_decay = {};
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) dvalue[v] = du[v] = Lanes{};
  for (std::int64_t j = 0; j < step.width; ++j) {
    Columns<Vectors> left, found, d;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      left[v] = load_lanes(after.row(j) + v * lane_count);
      found[v] = load_lanes(before.row(j) + v * lane_count);
      d[v] = load_lanes(dstate.row(j) + v * lane_count) + step.q[j] * dout[v];
      dvalue[v] += step.k[j] * d[v];
      if constexpr (Products) du[v] += step.b[j] * d[v];
      store_lanes(dstate.row(j) + v * lane_count, d[v] * step.decay[j]);
    }
    store_lanes(room.of_q + j * lane_count, product<Vectors>(left, dout));
    store_lanes(room.of_k + j * lane_count, product<Vectors>(d, value));
    if constexpr (Products) store_lanes(room.of_b + j * lane_count, product<Vectors>(d, u));
    const Lanes decayed = product<Vectors>(d, found);
    if (decays_by_feature)
      store_lanes(room.of_decay + j * lane_count, decayed);
    else
      of_decay += decayed;
  }
  return of_decay;
}

// What u = before^T a gives to a, as products whose sums are its gradient, and to `dstate`.
template <int Vectors>
METAFORMER_INLINE void go_back_through_u(const Step& step, StateRows<const float> before, StateRows<float> dstate,
                                         const Columns<Vectors>& du, float* of_a) {
  for (std::int64_t j = 0; j < step.width; ++j) {
    Columns<Vectors> found;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      found[v] = load_lanes(before.row(j) + v * lane_count);
      auto* to = dstate.row(j) + v * lane_count;
      store_lanes(to, load_lanes(to) + step.a[j] * du[v]);
    }
    store_lanes(of_a + j * lane_count, product<Vectors>(found, du));
  }
}

// Some columns of the states of a head: `count` of `Vectors` vectors.
template <int Vectors, bool Products>
struct ColumnsOfHead {
  const HeadStates& head;
  std::int64_t first, count;

  static constexpr std::int64_t stride = Vectors * lane_count;

  METAFORMER_INLINE void load_value(std::int64_t token, Columns<Vectors>& value) const {
    load_columns<Vectors>(head.value.of(token) + first, count, value);
  }

  METAFORMER_INLINE void copy_rows(StateRows<const float> from, StateRows<float> to) const {
    for (std::int64_t j = 0; j < head.key_width; ++j) std::copy_n(from.row(j), stride, to.row(j));
  }

  METAFORMER_INLINE void clear(StateRows<float> rows) const {
    for (std::int64_t j = 0; j < head.key_width; ++j) std::fill_n(rows.row(j), stride, 0.0f);
  }

  METAFORMER_INLINE void forward(float* state, TokenRows<float> o, float* kept_states, float* decay) const {
    const StateRows<float> rows{state + first, head.columns()};
    for (std::int64_t t = 0; t < head.tokens; ++t) {
      if (kept_states != nullptr && t % tokens_between_states == 0)
        copy_rows({rows.data, rows.stride},
                  {kept_states + t / tokens_between_states * head.state_size() + first, head.columns()});
      const auto kind = kind_of(head, t);
      Columns<Vectors> value, u, read = {};
      if (kind == StateToken::begins) clear(rows);
      if (kind != StateToken::padding) {
        fill_decay(head, t, decay);
        load_value(t, value);
        take_step<Vectors, Products, true>(step_of(head, t, decay), {rows.data, rows.stride}, rows, value, u, read);
      }
      store_columns<Vectors>(o.of(t) + first, count, read);
    }
  }

  // What each token of a chunk finds and leaves; of padding nothing.
  struct ChunkStates {
    const float *found[tokens_between_states], *left[tokens_between_states];
  };
  METAFORMER_INLINE ChunkStates compute_states(std::int64_t begin, std::int64_t end, const float* kept_states,
                                               const ChunkRoom& room) const {
    ChunkStates states;
    float* latest = room.states;
    copy_rows({kept_states + begin / tokens_between_states * head.state_size() + first, head.columns()},
              {latest, stride});
    for (auto t = begin; t < end; ++t) {
      const auto i = t - begin;
      if (kind_of(head, t) == StateToken::padding) continue;
      states.found[i] = kind_of(head, t) == StateToken::begins ? room.zeros : latest;
      latest += room.state;
      states.left[i] = latest;
      Columns<Vectors> value, u, none;
      float* decay = room.decays + i * room.padded;
      fill_decay(head, t, decay);
      load_value(t, value);
      take_step<Vectors, Products, false>(step_of(head, t, decay), {states.found[i], stride}, {latest, stride}, value,
                                          u, none);
      if constexpr (Products) store_columns<Vectors>(room.u + i * stride, stride, u);
    }
    return states;
  }

  METAFORMER_INLINE void backward(std::int64_t begin, std::int64_t end, const float* kept_states, float* dstate,
                                  const HeadStateGradients& gradients, const ChunkRoom& room) const {
    const auto states = compute_states(begin, end, kept_states, room);
    const StateRows<float> drows{dstate + first, head.columns()};
    const auto width = head.key_width;
    for (auto t = end - 1; t >= begin; --t) {
      const auto i = t - begin;
      const auto kind = kind_of(head, t);
      if (kind == StateToken::padding) continue;
      const float* decay = room.decays + i * room.padded;
      const StateRows<const float> found{states.found[i], stride}, left{states.left[i], stride};
      const auto step = step_of(head, t, decay);
      Columns<Vectors> value, u, dout, dvalue, du;
      load_value(t, value);
      load_columns<Vectors>(gradients.o.of(t) + first, count, dout);
      if constexpr (Products) load_columns<Vectors>(room.u + i * stride, stride, u);
      const bool decays_by_feature = gradients.log_decay && head.decay_width > 1;
      const Lanes of_decay =
          step_back<Vectors, Products>(step, found, left, drows, value, u, dout, room, dvalue, decays_by_feature, du);
      store_columns<Vectors>(gradients.value.of(t) + first, count, dvalue);
      add_sums(room.of_q, nullptr, width, gradients.q.of(t));
      add_sums(room.of_k, nullptr, width, gradients.k.of(t));
      if (decays_by_feature) add_sums(room.of_decay, decay, width, gradients.log_decay.of(t));
      if (gradients.log_decay && !decays_by_feature) *gradients.log_decay.of(t) += decay[0] * sum_of(of_decay);
      if constexpr (Products) {
        add_sums(room.of_b, nullptr, width, gradients.b.of(t));
        go_back_through_u<Vectors>(step, found, drows, du, room.of_q);
        add_sums(room.of_q, nullptr, width, gradients.a.of(t));
      }
      if (kind == StateToken::begins) clear(drows);
    }
  }
};

struct Forward {
  const HeadStates& head;
  float* state;
  TokenRows<float> o;
  float *kept_states, *decay;

  template <class, int, int Vectors>
  METAFORMER_INLINE void with() const {
    head.a ? run<Vectors, true>() : run<Vectors, false>();
  }
  template <int Vectors, bool Products>
  METAFORMER_INLINE void run() const {
    std::int64_t first = 0;
    for (; first + Vectors * lane_count <= head.columns(); first += Vectors * lane_count)
      ColumnsOfHead<Vectors, Products>{head, first, head.value_width - first}.forward(state, o, kept_states, decay);
    for (; first < head.columns(); first += lane_count)
      ColumnsOfHead<1, Products>{head, first, head.value_width - first}.forward(state, o, kept_states, decay);
  }
};

struct BackwardPass {
  const HeadStates& head;
  const float* kept_states;
  float* dstate;
  const HeadStateGradients& gradients;
  const ChunkRoom& room;

  template <class, int, int Vectors>
  METAFORMER_INLINE void with() const {
    head.a ? run<Vectors, true>() : run<Vectors, false>();
  }
  template <int Vectors, bool Products>
  METAFORMER_INLINE void run() const {
    const auto last = (head.tokens - 1) / tokens_between_states * tokens_between_states;
    for (auto begin = last; begin >= 0; begin -= tokens_between_states) {
      const auto end = std::min(begin + tokens_between_states, head.tokens);
      std::int64_t first = 0;
      for (; first + Vectors * lane_count <= head.columns(); first += Vectors * lane_count)
        ColumnsOfHead<Vectors, Products>{head, first, head.value_width - first}.backward(begin, end, kept_states,
                                                                                         dstate, gradients, room);
      for (; first < head.columns(); first += lane_count)
        ColumnsOfHead<1, Products>{head, first, head.value_width - first}.backward(begin, end, kept_states, dstate,
                                                                                   gradients, room);
    }
  }
};

}  // namespace

void mix_head_states(const HeadStates& head, float* state, TokenRows<float> o, float* kept,
                     std::vector<float>& workspace, VectorCode code) {
  host_kernel::run_with_vector_code(code, Forward{head, state, o, kept, room_for(head.key_width, workspace)});
}

void mix_head_states_backward(const HeadStates& head, const float* kept, float* dstate,
                              const HeadStateGradients& gradients, std::vector<float>& workspace, VectorCode code) {
  const ChunkRoom room(head, workspace);
  host_kernel::run_with_vector_code(code, BackwardPass{head, kept, dstate, gradients, room});
}

}  // namespace metaformer
