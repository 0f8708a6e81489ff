#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/dropout_places.h"
#include "cpu/attention_products.h"

namespace metaformer {

namespace host_kernel {

namespace {

constexpr std::int64_t panel = 32;  // columns of a transposed operand that lie together

// Rows as units of Packed (float or bfloat16), `step` units apart; zeros from `width` on and from row `count` up to
// `padded`.
template <class Packed, class Element>
METAFORMER_INLINE void pack_rows(const HeadRows& from, std::int64_t first, std::int64_t count, std::int64_t padded,
                                 float* units, std::int64_t step) {
  const auto columns = step * static_cast<std::int64_t>(sizeof(float) / sizeof(Packed));
  auto* to = reinterpret_cast<Packed*>(units);
  for (std::int64_t r = 0; r < padded; ++r, to += columns) {
    std::int64_t c = 0;
    if (r < count) {
      const auto* row = static_cast<const Element*>(from.data) + (first + r) * from.stride;
      for (; c + lane_count <= from.width; c += lane_count) copy_lanes(row + c, to + c);
      Element rest[lane_count] = {};
      std::copy(row + c, row + from.width, rest);
      if (c < from.width) copy_lanes(rest, to + c);
      c = round_up(from.width, lane_count);
    }
    std::fill(to + c, to + columns, Packed{});
  }
}

template <class Element>
METAFORMER_INLINE void unpack_rows(const float* from, std::int64_t step, std::int64_t count, const HeadRows& to,
                                   std::int64_t first) {
  for (std::int64_t r = 0; r < count; ++r, from += step) {
    auto* row = static_cast<Element*>(to.data) + (first + r) * to.stride;
    std::int64_t c = 0;
    for (; c + lane_count <= to.width; c += lane_count) store_lanes(row + c, load_lanes(from + c));
    if (c < to.width) store_some(row + c, load_lanes(from + c), to.width - c);
  }
}

template <class Element>
METAFORMER_INLINE void zero_rows(const HeadRows& to, std::int64_t first, std::int64_t count) {
  for (std::int64_t r = first; r < first + count; ++r)
    std::fill_n(static_cast<Element*>(to.data) + r * to.stride, to.width, Element{});
}

// The transpose of packed rows of `width` units: panels of 32 tokens, in each `width` rows of 32.
METAFORMER_INLINE void transpose(const float* rows, std::int64_t tokens, std::int64_t width, float* panels) {
  for (std::int64_t token = 0; token < tokens; token += lane_count) {
    float* to = panels + token / panel * panel * width + token % panel;
    for (std::int64_t c = 0; c < width; c += lane_count)
      transpose_block(rows + token * width + c, width, to + c * panel, panel);
  }
}

// Sixteen pairs of an even row's element and the odd row's below it.
METAFORMER_INLINE Lanes paired(ShortLanes even, ShortLanes odd) {
  return reinterpret_cast<Lanes>(__builtin_convertvector(even, UnsignedLanes) |
                                 __builtin_convertvector(odd, UnsignedLanes) << 16);
}

// Packed bfloat16 rows, `width` apart, as pairs along the rows: rows / 2 of `width` units. An even number of rows.
METAFORMER_INLINE void pair_rows(const float* units, std::int64_t rows, std::int64_t width, float* pairs) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(units);
  for (std::int64_t r = 0; r < rows; r += 2, from += 2 * width, pairs += width)
    for (std::int64_t c = 0; c < width; c += lane_count)
      store_lanes(pairs + c, paired(load_shorts(from + c), load_shorts(from + width + c)));
}

constexpr std::int64_t tile = 32;  // queries

// A tile's matrix as the left side of a product: rows as they lie, for a sum over columns, or columns, for one over
// rows.
struct Sides {
  Left rows, columns;
};

// Operands packed in Units.
template <class Element, class Units, int Rows, int Vectors>
struct Packing {
  static constexpr bool pairs = Units::unit == 2;
  using Packed = std::conditional_t<pairs, std::uint16_t, float>;

  HeadWorkspace& workspace;

  // `padded` rows of `units`, zeros behind the first `count`.
  METAFORMER_INLINE float* packed_rows(const HeadRows& from, std::int64_t count, std::int64_t padded,
                                       std::int64_t units) const {
    float* rows = workspace.take(padded * units);
    pack_rows<Packed, Element>(from, 0, count, padded, rows, units);
    return rows;
  }

  // The right side of a product whose depth is the width of these packed rows.
  METAFORMER_INLINE const float* transposed(const float* rows, std::int64_t count, std::int64_t units) const {
    float* panels = workspace.take(count * units);
    transpose(rows, count, units, panels);
    return panels;
  }

  // The right side of a product whose depth these packed rows are.
  METAFORMER_INLINE const float* along_rows(const float* rows, std::int64_t count, std::int64_t width) const {
    if constexpr (!pairs) return rows;
    float* units = workspace.take(count / 2 * width);
    pair_rows(rows, count, width, units);
    return units;
  }

  // product[i][j] = left_i . (row j of what `panels` is the transpose of), for `count` rows, in whole panels.
  METAFORMER_INLINE void multiply_panels(const float* left, std::int64_t units, const float* panels, std::int64_t count,
                                         float* product, std::int64_t step) const {
    for (std::int64_t j = 0; j < count; j += panel)
      multiply<Units, Rows, Vectors, false>(tile, panel, units, {left, units, 1}, panels + j * units, panel,
                                            product + j, step);
  }

  // Of a tile of `width` columns, `step` apart; packed rows, if of pairs, in `rows`.
  METAFORMER_INLINE Sides sides_of(const float* x, std::int64_t width, std::int64_t step, float* rows) const {
    if constexpr (!pairs) {
      return {{x, step, 1}, {x, 1, step}};
    } else {
      auto* shorts = reinterpret_cast<std::uint16_t*>(rows);
      float* in_pairs = workspace.take(tile * step / 2);
      for (std::int64_t r = 0; r < tile; r += 2) {
        for (std::int64_t j = 0; j < width; j += lane_count) {
          const auto even = r * step + j, odd = even + step;
          const auto above = Units::rounded(load_lanes(x + even)), below = Units::rounded(load_lanes(x + odd));
          store_shorts(shorts + even, above);
          store_shorts(shorts + odd, below);
          store_lanes(in_pairs + r / 2 * step + j, paired(above, below));
        }
      }
      return {{rows, step / 2, 1}, {in_pairs, 1, step}};
    }
  }
};

// What distances add to the scores (HeadAttention::distance), tile by tile of queries: a product with all the distances
// of a tile, of which every query takes its own stretch.
template <class Element, class Units, int Rows, int Vectors>
struct Distances : Packing<Element, Units, Rows, Vectors> {
  using Base = Packing<Element, Units, Rows, Vectors>;
  using Base::workspace, Base::pairs;
  using typename Base::Packed;

  const HeadAttention& in;
  std::int64_t key_width, key_units;
  std::int64_t all_queries = in.queries + in.query_padding;
  // Rows of 0 before the first distance, so that those of every tile begin at a panel.
  std::int64_t lead = round_up(all_queries, tile) - all_queries;
  std::int64_t rows = round_up(all_queries, tile) + round_up(in.keys, panel);
  std::int64_t step = round_up(in.keys, panel) + tile + lane_count;  // of a tile's matrices
  const float *packed = nullptr, *panels = nullptr;
  float *queries = nullptr, *products = nullptr, *gradient = nullptr;

  Distances(const HeadAttention& head, HeadWorkspace& workspace, std::int64_t width, std::int64_t units)
      : Base{workspace}, in(head), key_width(width), key_units(units) {}

  bool any() const { return in.distances > 0; }

  // Floats of the workspace that it takes.
  METAFORMER_INLINE std::int64_t size() const {
    return any() ? 4 * rows * key_width + tile * (3 * step + 3 * key_width) : 0;
  }

  METAFORMER_INLINE void prepare(bool backward) {
    if (!any()) return;
    float* all = workspace.take(rows * key_units);
    std::fill(all, all + lead * key_units, 0.0f);
    pack_rows<Packed, Element>(in.distance, 0, std::min(in.distances, rows - lead), rows - lead, all + lead * key_units,
                               key_units);
    panels = this->transposed(all, rows, key_units);
    queries = workspace.take(tile * key_units);
    products = workspace.take(tile * step);
    if (!backward) return;
    packed = this->along_rows(all, rows, key_width);
    gradient = workspace.take(rows * key_width);
    std::fill(gradient, gradient + rows * key_width, 0.0f);
  }

  // The row of the first distance of a tile to key `begin`; that of its query r to key j is j - begin + tile - 1 - r
  // rows further.
  METAFORMER_INLINE std::int64_t first_row(std::int64_t first_query, std::int64_t begin) const {
    return round_up(all_queries, tile) - tile - first_query + begin;
  }

  // score[r][j] += ... for keys begin + j, j < width, of the queries from `first`.
  METAFORMER_INLINE void add(std::int64_t first, std::int64_t begin, std::int64_t width, float* score,
                             std::int64_t score_step) const {
    pack_rows<Packed, Element>(in.distance_q, first, std::min(tile, in.queries - first), tile, queries, key_units);
    this->multiply_panels(queries, key_units, panels + first_row(first, begin) * key_units, width + tile, products,
                          step);
    for (std::int64_t r = 0; r < tile; ++r) {
      const float* of_query = products + r * step + tile - 1 - r;
      for (std::int64_t j = 0; j < width; j += lane_count)
        store_lanes(score + r * score_step + j, load_lanes(score + r * score_step + j) + load_lanes(of_query + j));
    }
  }

  // The gradients behind the scores' own, which are 0 in rows that are not there; after add() of the same tile.
  METAFORMER_INLINE void add_gradients(std::int64_t first, std::int64_t begin, std::int64_t width, const float* slopes,
                                       std::int64_t score_step) const {
    for (std::int64_t r = 0; r < tile; ++r) {
      float* of_query = products + r * step;
      std::fill(of_query, of_query + width + tile, 0.0f);
      std::copy_n(slopes + r * score_step, width, of_query + tile - 1 - r);
    }
    const auto row = first_row(first, begin);
    const auto left = this->sides_of(products, width + tile, step, pairs ? workspace.take(tile * step / 2) : nullptr);
    float* dq = workspace.take(tile * key_width);
    multiply<Units, Rows, Vectors, false>(tile, key_width, (width + tile) / Units::unit, left.rows,
                                          packed + row / Units::unit * key_width, key_width, dq, key_width);
    unpack_rows<Element>(dq, key_width, std::min(tile, in.queries - first), in.ddistance_q, first);
    const float* of_queries = this->along_rows(queries, tile, key_width);
    multiply<Units, Rows, Vectors, true>(width + tile, key_width, tile / Units::unit, left.columns, of_queries,
                                         key_width, gradient + row * key_width, key_width);
  }

  METAFORMER_INLINE void store_gradients() const {
    if (!any()) return;
    const auto there = std::min(in.distances, rows - lead);
    unpack_rows<Element>(gradient + lead * key_width, key_width, there, in.ddistance, 0);
    zero_rows<Element>(in.ddistance, there, in.distances - there);
    zero_rows<Element>(in.ddistance_q, in.queries, in.query_padding);
  }
};

// What a tile of queries may see, in whole panels: keys from `begin` on, `count` of them.
struct KeyRange {
  std::int64_t begin, count;
};

// A head: its operands as products take them, and its scores, tile by tile of queries.
template <class Element, class Units, int Rows, int Vectors>
struct Head : Packing<Element, Units, Rows, Vectors> {
  using Base = Packing<Element, Units, Rows, Vectors>;
  using Base::workspace, Base::pairs;
  using typename Base::Packed;

  const HeadAttention& in;
  std::int64_t all_keys = round_up(in.keys, panel), score_step = all_keys + lane_count;
  std::int64_t key_width = round_up(in.q.width, lane_count* Units::unit);
  std::int64_t value_width = round_up(in.v.width, lane_count* Units::unit);
  std::int64_t key_units = key_width / Units::unit, value_units = value_width / Units::unit;
  // Right sides of products, of all keys: panels where the depth is the width, the others where it is the keys.
  const float *keys = nullptr, *values = nullptr, *key_panels = nullptr, *value_panels = nullptr;
  // Of a tile: rows of units, scores in float32 and, of pairs, as rows of units.
  float *queries = nullptr, *weights = nullptr, *weight_rows = nullptr;
  Distances<Element, Units, Rows, Vectors> distances;

  Head(const HeadAttention& head, HeadWorkspace& workspace)
      : Base{workspace}, in(head), distances(head, workspace, key_width, key_units) {}

  METAFORMER_INLINE void prepare(bool backward) {
    // Rows, their transpose, gradients; of a tile rows, pairs of them and all forms of scores.
    const auto per_token = (backward ? 3 : 2) * (key_width + value_width);
    workspace.begin(all_keys * per_token + tile * (4 * score_step + 2 * (key_width + value_width)) + distances.size());
    const float* key_rows = this->packed_rows(in.k, in.keys, all_keys, key_units);
    key_panels = this->transposed(key_rows, all_keys, key_units);
    if (backward || in.shares_values()) keys = this->along_rows(key_rows, all_keys, key_width);
    queries = workspace.take(tile * key_units);
    weights = workspace.take(tile * score_step);
    if (pairs) weight_rows = workspace.take(tile * score_step / 2);
    distances.prepare(backward);
    if (in.shares_values()) {
      values = keys, value_panels = key_panels;
      return;
    }
    const float* value_rows = this->packed_rows(in.v, in.keys, all_keys, value_units);
    if (backward)
      value_panels = this->transposed(value_rows, all_keys, value_units);
    else
      values = this->along_rows(value_rows, all_keys, value_width);
  }

  METAFORMER_INLINE KeyRange keys_of_tile(std::int64_t first) const {
    return in.query_segment == nullptr ? keys_in_order(first) : keys_of_segments(first, keys_in_order(first));
  }

  // Without those at either end whose segments are none of the tile's.
  METAFORMER_INLINE KeyRange keys_of_segments(std::int64_t first, const KeyRange& range) const {
    const auto* queries_begin = in.query_segment + first;
    const auto [least, most] = std::minmax_element(queries_begin, queries_begin + std::min(tile, in.queries - first));
    const auto is_other = [least = *least, most = *most](std::int64_t s) { return s < least || s > most; };
    auto begin = range.begin, end = std::min(in.keys, range.begin + range.count);
    while (begin < end && is_other(in.key_segment[begin])) ++begin;
    while (begin < end && is_other(in.key_segment[end - 1])) --end;
    begin = begin / panel * panel;
    return {begin, round_up(end - begin, panel)};
  }

  // How far behind its own place a query sees keys, where that has a limit.
  METAFORMER_INLINE std::int64_t keys_ahead() const { return in.causal ? 0 : in.window - 1; }

  METAFORMER_INLINE KeyRange keys_in_order(std::int64_t first) const {
    if (!in.causal && in.window == 0) return {0, all_keys};
    const auto end = std::min(all_keys, round_up(first + in.offset + tile + keys_ahead(), panel));
    const auto begin =
        in.window == 0 ? 0 : std::max<std::int64_t>(0, first + in.offset - in.window + 1) / panel * panel;
    return {std::min(begin, end), end - std::min(begin, end)};
  }

  // A row of the right side of a product over keys.
  METAFORMER_INLINE const float* from_key(const float* along_keys, std::int64_t key, std::int64_t width) const {
    return along_keys + key / Units::unit * width;
  }

  // Of a query's scores those of keys that it does not see become -infinity; keys from in.keys on do not exist.
  METAFORMER_INLINE void mask(float* score, std::int64_t query, const KeyRange& range) const {
    const auto place = query + in.offset;
    const auto end = in.causal || in.window > 0 ? std::min(place + 1 + keys_ahead(), in.keys) : in.keys;
    const auto visible = std::clamp<std::int64_t>(end - range.begin, 0, range.count);
    std::fill(score + visible, score + range.count, -infinity);
    if (in.window > 0)
      std::fill_n(score, std::clamp<std::int64_t>(place - in.window + 1 - range.begin, 0, visible), -infinity);
    if (in.query_segment == nullptr) return;
    const auto own = in.query_segment[query];
    for (std::int64_t j = 0; j < visible; ++j)
      if (in.key_segment[range.begin + j] != own || own == -1) score[j] = -infinity;
  }

  METAFORMER_INLINE void score_tile(std::int64_t first, const KeyRange& range) const {
    const auto count = std::min(tile, in.queries - first);
    pack_rows<Packed, Element>(in.q, first, count, tile, queries, key_units);
    this->multiply_panels(queries, key_units, key_panels + range.begin * key_units, range.count, weights, score_step);
    if (distances.any()) distances.add(first, range.begin, range.count, weights, score_step);
    for (std::int64_t r = 0; r < count; ++r) mask(weights + r * score_step, first + r, range);
  }

  // What dropout multiplies the weights of 16 keys with.
  METAFORMER_INLINE Lanes kept(const DropoutLanes& mask, std::int64_t query, std::int64_t key) const {
    return mask.factors(static_cast<std::int64_t>(in.first_place + cuda::place_in_head(query, key)));
  }
};

// Forward: softmax over the scores of a tile, then its mix of the values.
template <class Element, class Units, int Rows, int Vectors>
struct ForwardHead : Head<Element, Units, Rows, Vectors> {
  using Base = Head<Element, Units, Rows, Vectors>;
  using Base::Base;
  using Base::in, Base::workspace, Base::score_step, Base::value_width, Base::pairs, Base::weights, Base::weight_rows,
      Base::values;

  // Of a tile's row.
  METAFORMER_INLINE void store_weights(std::int64_t row, std::int64_t key, Lanes weight) const {
    if constexpr (pairs)
      store_shorts(reinterpret_cast<std::uint16_t*>(weight_rows) + row * score_step + key, Units::rounded(weight));
    else
      store_lanes(weights + row * score_step + key, weight);
  }

  // Scores become exponentials relative to the greatest, without those that dropout takes; returns the sum of all.
  METAFORMER_INLINE float exponentiate(std::int64_t row, std::int64_t query, const KeyRange& range,
                                       float& greatest) const {
    const float* score = weights + row * score_step;
    greatest = greatest_of(greatest_lanes(score, range.count));
    Lanes total = {};
    const float scale = in.scale;  // what is read from `in` within the loop is read anew after every store
    const DropoutLanes mask(in.dropout);
    const bool drops = mask.drops();
    const Lanes offset = every_lane(greatest == -infinity ? 0.0f : greatest * in.scale);
    for (std::int64_t j = 0; j < range.count; j += lane_count) {
      const Lanes e = exp_of(load_lanes(score + j) * scale - offset);
      total += e;
      store_weights(row, j, drops ? e * this->kept(mask, query, range.begin + j) : e);
    }
    return sum_of(total);
  }

  // `inverse`: what the row's exponentials, whose sum is `total`, are multiplied by. Its log_sum.
  METAFORMER_INLINE float normalise(float greatest, float total, float& inverse) const {
    inverse = total == 0 ? 0 : 1 / total;
    if (total == 0) return infinity;
    const float own = greatest * in.scale + std::log(total);
    if (in.sink == -infinity) return own;
    inverse /= 1 + std::exp(in.sink - own);
    return std::max(own, in.sink) + std::log1p(std::exp(-std::abs(own - in.sink)));
  }

  METAFORMER_INLINE void run() {
    this->prepare(false);
    float* mixed = workspace.take(tile * value_width);
    const Left left = {pairs ? weight_rows : weights, score_step / Units::unit, 1};
    for (std::int64_t first = 0; first < in.queries; first += tile) {
      const auto range = this->keys_of_tile(first);
      const auto count = std::min(tile, in.queries - first);
      this->score_tile(first, range);
      float inverse[tile] = {};
      for (std::int64_t r = 0; r < count; ++r) {
        float greatest;
        const float total = exponentiate(r, first + r, range, greatest);
        in.log_sum[first + r] = normalise(greatest, total, inverse[r]);
      }
      multiply<Units, Rows, Vectors, false>(tile, value_width, range.count / Units::unit, left,
                                            this->from_key(values, range.begin, value_width), value_width, mixed,
                                            value_width);
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t c = 0; c < value_width; c += lane_count)
          store_lanes(mixed + r * value_width + c, load_lanes(mixed + r * value_width + c) * inverse[r]);
      unpack_rows<Element>(mixed, value_width, count, in.t, first);
    }
    zero_rows<Element>(in.t, in.queries, in.query_padding);
    std::fill_n(in.log_sum + in.queries, in.query_padding, infinity);
  }
};

// Backward: weights are computed again from the scores and the stored logsumexp.
template <class Element, class Units, int Rows, int Vectors>
struct BackwardHead : Head<Element, Units, Rows, Vectors> {
  using Base = Head<Element, Units, Rows, Vectors>;
  using Base::Base;
  using Base::in, Base::workspace, Base::all_keys, Base::score_step, Base::key_width, Base::value_width,
      Base::value_units, Base::queries, Base::weights, Base::weight_rows, Base::distances, Base::keys,
      Base::value_panels;
  using typename Base::Packed;

  // dt_i . t_i
  METAFORMER_INLINE float delta_of(std::int64_t query) const {
    const auto* t = static_cast<const Element*>(in.t.data) + query * in.t.stride;
    const auto* dt = static_cast<const Element*>(in.dt.data) + query * in.dt.stride;
    Lanes total = {};
    std::int64_t c = 0;
    for (; c + lane_count <= in.t.width; c += lane_count) total += load_lanes(dt + c) * load_lanes(t + c);
    if (const auto rest = in.t.width - c; rest > 0) total += load_some(dt + c, rest) * load_some(t + c, rest);
    return sum_of(total);
  }

  // weights become P, `slopes` (dP) become scale P (dP - delta); with dropout m: m P, and scale P (m dP - delta).
  METAFORMER_INLINE void weigh(std::int64_t first, const KeyRange& range, float* slopes) const {
    const float scale = in.scale;
    const DropoutLanes mask(in.dropout);
    const bool drops = mask.drops();
    for (std::int64_t r = 0; r < tile; ++r) {
      const bool exists = first + r < in.queries;
      const float log_sum = exists ? in.log_sum[first + r] : infinity;
      const float delta = exists ? delta_of(first + r) : 0;
      float *weight = weights + r * score_step, *slope = slopes + r * score_step;
      if (!(log_sum < infinity) && log_sum == log_sum) {  // sees nothing, or is not there
        std::fill_n(weight, range.count, 0.0f);
        std::fill_n(slope, range.count, 0.0f);
        continue;
      }
      for (std::int64_t j = 0; j < range.count; j += lane_count) {
        const Lanes p = exp_of(load_lanes(weight + j) * scale - log_sum);
        const Lanes m = drops ? this->kept(mask, first + r, range.begin + j) : every_lane(1);
        store_lanes(weight + j, m * p);
        store_lanes(slope + j, p * (m * load_lanes(slope + j) - delta) * scale);
      }
    }
  }

  METAFORMER_INLINE void run() {
    this->prepare(true);
    float* dt = workspace.take(tile * value_units);
    float* slopes = workspace.take(tile * score_step);
    float* dq = workspace.take(tile * key_width);
    float* dk = workspace.take(all_keys * key_width);
    float* dv = in.shares_values() ? dk : workspace.take(all_keys * value_width);
    std::fill(dk, dk + all_keys * key_width, 0.0f);
    std::fill(dv, dv + all_keys * value_width, 0.0f);
    const auto of_tile = workspace.mark();
    for (std::int64_t first = 0; first < in.queries; first += tile, workspace.rewind(of_tile)) {
      const auto range = this->keys_of_tile(first);
      const auto count = std::min(tile, in.queries - first);
      this->score_tile(first, range);
      pack_rows<Packed, Element>(in.dt, first, count, tile, dt, value_units);
      this->multiply_panels(dt, value_units, value_panels + range.begin * value_units, range.count, slopes, score_step);
      weigh(first, range, slopes);
      const auto slope = this->sides_of(slopes, range.count, score_step, weight_rows);
      const auto* of_queries = this->along_rows(queries, tile, key_width);
      multiply<Units, Rows, Vectors, false>(tile, key_width, range.count / Units::unit, slope.rows,
                                            this->from_key(keys, range.begin, key_width), key_width, dq, key_width);
      unpack_rows<Element>(dq, key_width, count, in.dq, first);
      multiply<Units, Rows, Vectors, true>(range.count, key_width, tile / Units::unit, slope.columns, of_queries,
                                           key_width, dk + range.begin * key_width, key_width);
      const auto weight = this->sides_of(weights, range.count, score_step, weight_rows);
      const auto* of_dt = this->along_rows(dt, tile, value_width);
      multiply<Units, Rows, Vectors, true>(range.count, value_width, tile / Units::unit, weight.columns, of_dt,
                                           value_width, dv + range.begin * value_width, value_width);
      if (distances.any()) distances.add_gradients(first, range.begin, range.count, slopes, score_step);
    }
    unpack_rows<Element>(dk, key_width, in.keys, in.dk, 0);
    if (!in.shares_values()) unpack_rows<Element>(dv, value_width, in.keys, in.dv, 0);
    zero_rows<Element>(in.dq, in.queries, in.query_padding);
    zero_rows<Element>(in.dk, in.keys, in.key_padding);
    if (!in.shares_values()) zero_rows<Element>(in.dv, in.keys, in.key_padding);
    distances.store_gradients();
  }
};

template <class Element, class Units, int Rows, int Vectors>
METAFORMER_INLINE void compute(const HeadAttention& head, HeadWorkspace& workspace, bool backward) {
  if (backward)
    BackwardHead<Element, Units, Rows, Vectors>(head, workspace).run();
  else
    ForwardHead<Element, Units, Rows, Vectors>(head, workspace).run();
}

struct HeadRun {
  const HeadAttention& head;
  HeadWorkspace& workspace;
  bool backward;

  template <class Units, int Rows, int Vectors>
  METAFORMER_INLINE void with() const {
    if (head.bf16)
      compute<std::uint16_t, Units, Rows, Vectors>(head, workspace, backward);
    else
      compute<float, Units, Rows, Vectors>(head, workspace, backward);
  }
};

#ifdef __x86_64__
__attribute__((target("arch=x86-64-v4"))) void run_with_avx512_bf16(const HeadRun& run) {
  compute<std::uint16_t, Bf16Pairs, 8, 2>(run.head, run.workspace, run.backward);
}
#endif

void attend(const HeadRun& run, VectorCode code) {
#ifdef __x86_64__
  if (code == VectorCode::avx512_bf16 && run.head.bf16) return run_with_avx512_bf16(run);
#endif
  run_with_vector_code(code, run);
}

}  // namespace

}  // namespace host_kernel

static constexpr std::int64_t cache_line = 16;  // floats

void HeadWorkspace::begin(std::int64_t count) {
  constexpr std::int64_t pieces = 32;
  const auto needed = static_cast<std::size_t>(count + (pieces + 1) * cache_line);
  if (memory_.size() < needed) memory_.resize(needed);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  next_ = memory_.data() + (64 - address % 64) % 64 / sizeof(float);
}

float* HeadWorkspace::take(std::int64_t count) {
  float* piece = next_;
  next_ += (count + cache_line - 1) / cache_line * cache_line;
  return piece;
}

void attend_forward(const HeadAttention& head, HeadWorkspace& workspace, VectorCode code) {
  host_kernel::attend({head, workspace, false}, code);
}
void attend_backward(const HeadAttention& head, HeadWorkspace& workspace, VectorCode code) {
  host_kernel::attend({head, workspace, true}, code);
}

}  // namespace metaformer
