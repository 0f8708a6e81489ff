#include "cuda/metric_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/dropout_places.h"
#include "base/random.h"
#include "cpu/dropout.h"
#include "cuda/kernel_tokens.h"

namespace metaformer {

namespace {

using cuda::MetricElement;
using cuda::MetricForm;

Values normal(const MetricCase& problem, std::uint64_t stream, std::size_t count, double spread) {
  return normal_values(problem.given.value_or(problem.element), problem.seed, stream, count, spread);
}

constexpr std::uint64_t dropout_key = 0x0123456789abcdef, dropout_number = 3;
constexpr std::int64_t first_row = 5;

// What is drawn for a case, as it is stored.
struct Inputs {
  Values p, keys, values, dt, metric;  // the metric dense, whatever the form
  std::vector<float> kept;             // [b, n, c, e]: what dropout multiplies weights with; empty: nothing is dropped
  std::vector<std::int32_t> segments, key_segments;

  explicit Inputs(const MetricCase& c) {
    const auto size = static_cast<std::size_t>(c.batch * c.heads * c.tokens * c.width);
    p = normal(c, 1, size, c.spread);
    dt = normal(c, 2, size, 1);
    const auto k = static_cast<std::size_t>(c.width), of_head = k * static_cast<std::size_t>(c.tokens);
    for (std::size_t i = 0; c.equal_tokens && i < size; ++i)
      if (i % of_head >= k) p[i] = p[i - k];
    keys = p;
    if (c.keys > 0) draw_keys(c);
    values = keys;
    if (c.values) values = normal(c, 5, keys.size(), 1);
    make_metric(c);
    segments = segments_of(c, c.tokens);
    key_segments = segments_of(c, c.key_count());
    if (c.dropout > 0) draw_dropout(c);
  }

 private:
  void draw_keys(const MetricCase& c) {
    const auto k = static_cast<std::size_t>(c.width), heads = static_cast<std::size_t>(c.batch * c.heads);
    const auto queries = static_cast<std::size_t>(c.tokens), count = static_cast<std::size_t>(c.keys);
    keys = normal(c, 4, heads * count * k, c.spread);
    const auto shared = c.causal ? std::min(queries, count) : 0;
    for (std::size_t head = 0; head < heads; ++head)
      std::copy_n(p.begin() + static_cast<std::ptrdiff_t>(((head + 1) * queries - shared) * k), shared * k,
                  keys.begin() + static_cast<std::ptrdiff_t>(((head + 1) * count - shared) * k));
  }

  void make_metric(const MetricCase& c) {
    const auto k = static_cast<std::size_t>(c.width), heads = static_cast<std::size_t>(c.heads);
    const auto drawn = normal(c, 3, heads * k * k, 1 / std::sqrt(static_cast<double>(k)));
    metric.assign(heads * k * k, 0);
    for (std::size_t n = 0; n < heads; ++n) {
      const auto at = [&](std::size_t i, std::size_t j) -> double& { return metric[(n * k + i) * k + j]; };
      const auto from = [&](std::size_t i, std::size_t j) { return drawn[(n * k + i) * k + j]; };
      for (std::size_t i = 0; i < k; ++i) {
        for (std::size_t j = 0; j < k; ++j) {
          if (c.form == MetricForm::identity) at(i, j) = i == j;
          if (c.form == MetricForm::diagonal) at(i, j) = i == j ? stored(c.element, std::fabs(from(i, i)) + 0.25) : 0;
          if (c.form != MetricForm::dense) continue;
          double value = c.symmetric ? from(std::max(i, j), std::min(i, j)) : from(i, j);
          for (std::size_t l = 0; c.distance && l < k; ++l) value += 0.5 * from(i, l) * from(j, l);  // nearly psd
          at(i, j) = stored(c.element, value);
        }
      }
    }
  }

  // By the CPU's dropout of a tensor of ones.
  void draw_dropout(const MetricCase& c) {
    kept.assign(static_cast<std::size_t>(c.batch * c.heads * c.tokens * c.key_count()), 1);
    const DropoutMask mask(c.dropout, Rng::with_key(dropout_key).bits(dropout_number));
    const auto keys = static_cast<std::int64_t>(c.key_count());
    auto* weight = kept.data();
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t n = 0; n < c.heads; ++n)
        for (std::int64_t i = 0; i < c.tokens; ++i, weight += keys)
          for (std::int64_t j = 0; j < keys; j += DropoutMask::together)
            mask.apply(weight + j, weight + j, std::min(DropoutMask::together, keys - j),
                       cuda::place_of_weight(first_row + b, n, i, j));
  }

  // Of the queries or of the keys, of which there are `count`.
  static std::vector<std::int32_t> segments_of(const MetricCase& c, int count) {
    std::vector<std::int32_t> list;
    if (c.mask == Mask::none) return list;
    for (int b = 0; b < c.batch; ++b) {
      for (int i = 0; i < count; ++i) {
        const int used = count - (b * count) / 3 - 1;  // at least one token is padding
        std::int32_t segment = -1;
        if (c.mask == Mask::padding && i < used) segment = 0;
        if (c.mask == Mask::blocks && i < used) segment = i / (5 + 20 * b);
        list.push_back(segment);
      }
    }
    return list;
  }
};

reference::Problem problem_of(const MetricCase& c, const Inputs& inputs, int batch, int head) {
  const auto slice = [](const Values& all, int number, int rows, int columns) {
    reference::Matrix matrix(rows, columns);
    const auto size = static_cast<std::ptrdiff_t>(matrix.data.size());
    std::copy_n(all.begin() + number * size, size, matrix.data.begin());
    return matrix;
  };
  const int number = batch * c.heads + head;
  const auto kept = [&c, &inputs, number](int query, int key) -> double {
    if (inputs.kept.empty()) return 1;
    return inputs.kept[static_cast<std::size_t>((number * c.tokens + query) * c.key_count() + key)];
  };
  const auto visible = [&c, &inputs, batch](int query, int key) {
    if (c.causal && key > query + c.key_count() - c.tokens) return false;
    if (inputs.segments.empty()) return true;
    const auto of_query = inputs.segments[static_cast<std::size_t>(batch * c.tokens + query)];
    return of_query == inputs.key_segments[static_cast<std::size_t>(batch * c.key_count() + key)] && of_query != -1;
  };
  return {.p = slice(inputs.p, number, c.tokens, c.width),
          .keys = slice(inputs.keys, number, c.key_count(), c.width),
          .values = slice(inputs.values, number, c.key_count(), c.width),
          .metric = slice(inputs.metric, head, c.width, c.width),
          .dt = slice(inputs.dt, number, c.tokens, c.width),
          .scale = 1 / std::sqrt(static_cast<double>(c.width)),
          .distance = c.distance,
          .to_themselves = c.keys == 0,
          .has_values = c.values,
          .visible = visible,
          .kept = kept};
}

// Of a distance only the symmetric part of M exists; of a diagonal form only the diagonal.
void reduce_metric_gradient(const MetricCase& c, Values& dmetric) {
  const auto k = static_cast<std::size_t>(c.width);
  for (std::size_t n = 0; n < static_cast<std::size_t>(c.heads); ++n) {
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        auto &a = dmetric[(n * k + i) * k + j], &b = dmetric[(n * k + j) * k + i];
        if (c.distance) a = b = a + b;
        if (c.form == MetricForm::diagonal) a = b = 0;
      }
    }
  }
  if (c.form == MetricForm::identity) dmetric.clear();
}

template <class Solve>
MetricResult solve(const MetricCase& c, Solve solve_one) {
  using R = MetricResult;
  constexpr Values R::*joined[] = {&R::t,
                                   &R::dp,
                                   &R::dkeys,
                                   &R::dvalues,
                                   &R::log2_sum,
                                   &R::dp_terms,
                                   &R::dkeys_terms,
                                   &R::dvalues_terms,
                                   &R::t_cut_terms,
                                   &R::dp_cut_terms,
                                   &R::dkeys_cut_terms,
                                   &R::dvalues_cut_terms,
                                   &R::log2_sum_cut_terms};
  constexpr Values R::*summed[] = {&R::dmetric, &R::dmetric_terms};  // over the batch
  const Inputs inputs(c);
  MetricResult result;
  const auto form = static_cast<std::size_t>(c.width * c.width);
  for (const auto field : summed) (result.*field).assign(static_cast<std::size_t>(c.heads) * form, 0);
  for (int b = 0; b < c.batch; ++b) {
    for (int n = 0; n < c.heads; ++n) {
      const MetricResult one = solve_one(problem_of(c, inputs, b, n));
      for (const auto field : joined)
        (result.*field).insert((result.*field).end(), (one.*field).begin(), (one.*field).end());
      for (const auto field : summed)
        for (std::size_t i = 0; i < (one.*field).size(); ++i)
          (result.*field)[static_cast<std::size_t>(n) * form + i] += (one.*field)[i];
    }
  }
  for (const auto field : summed) reduce_metric_gradient(c, result.*field);
  return result;
}

}  // namespace

std::string MetricCase::str() const {
  static constexpr const char *elements[] = {"bf16", "fp16", "tf32", "fp32"},
                              *forms[] = {"dense", "diagonal", "identity"},
                              *masks[] = {"no mask", "padding", "blocks", "all padding"},
                              *layouts[] = {"contiguous", "interleaved", "unaligned"};
  return fmt::format("{} {}{}{}{} {} {} b={} n={} c={} e={} k={} spread={} seed={}{} dropout={}",
                     elements[static_cast<int>(element)], symmetric ? "" : "general ", forms[static_cast<int>(form)],
                     distance ? " distance" : "", values ? " own values" : "", masks[static_cast<int>(mask)],
                     layouts[static_cast<int>(layout)], batch, heads, tokens, key_count(), width, spread, seed,
                     causal ? " causal" : "", dropout);
}

MetricResult run_kernels(const MetricCase& c, std::int64_t with_nan) {
  const Inputs inputs(c);
  const auto rows = static_cast<std::size_t>(c.batch * c.heads * c.tokens);
  const auto k = static_cast<std::size_t>(c.width), heads = static_cast<std::size_t>(c.heads);
  const auto of_queries = [&](Layout layout) { return Tokens(c.element, c.batch, c.heads, c.tokens, c.width, layout); };
  const auto of_keys = [&](Layout layout) { return Tokens(c.element, c.batch, c.heads, c.keys, c.width, layout); };
  auto p = of_queries(c.layout), dt = of_queries(c.layout), t = of_queries(Layout::interleaved),
       q = of_queries(Layout::contiguous), dq = of_queries(Layout::contiguous), dp = of_queries(c.layout);
  auto keys = of_keys(c.layout), key_q = of_keys(Layout::contiguous), key_dq = of_keys(Layout::contiguous),
       dkeys = of_keys(c.layout);
  const auto of_values = [&] { return Tokens(c.element, c.batch, c.heads, c.key_count(), c.width, c.layout); };
  auto values = of_values(), dvalues = of_values();
  values.set(inputs.values);
  const bool others = c.keys > 0;
  if (others) keys.set(inputs.keys);
  p.set(inputs.p);
  dt.set(inputs.dt);
  if (with_nan >= 0) p.set(static_cast<std::size_t>(with_nan), std::nan(""));

  // The metric as [b = n, n = 1, c = rows of it, k].
  const bool is_dense = c.form == MetricForm::dense;
  Tokens metric(c.element, c.heads, 1, is_dense ? c.width : 1, c.width, Layout::contiguous);
  if (is_dense) metric.set(inputs.metric);
  for (std::size_t n = 0; c.form == MetricForm::diagonal && n < heads; ++n)
    for (std::size_t i = 0; i < k; ++i) metric.set(n * k + i, inputs.metric[(n * k + i) * k + i]);
  KernelMemory key(8), segments(4 * inputs.segments.size()), key_segments(4 * inputs.key_segments.size());
  std::memcpy(key.data(), &dropout_key, 8);
  const auto given = [](KernelMemory& memory, const std::vector<std::int32_t>& values) -> const std::int32_t* {
    if (values.empty()) return nullptr;
    std::memcpy(memory.data(), values.data(), 4 * values.size());
    return reinterpret_cast<const std::int32_t*>(memory.data());
  };
  const cuda::MetricSide queries{c.tokens, p.data(), p.strides(), given(segments, inputs.segments)};

  const cuda::MetricInputs in{
      .element = c.element,
      .form = c.form,
      .distance = c.distance,
      .causal = c.causal,
      .batch = c.batch,
      .heads = c.heads,
      .width = c.width,
      .scale = 1 / std::sqrt(static_cast<float>(c.width)),
      .metric = c.form == MetricForm::identity ? nullptr : metric.data(),
      .queries = queries,
      .keys = others ? cuda::MetricSide{c.keys, keys.data(), keys.strides(), given(key_segments, inputs.key_segments)}
                     : queries,
      .to_themselves = !others,
      .values = c.values ? values.data() : nullptr,
      .value_strides = values.strides(),
      .dropout = {c.dropout, c.dropout > 0 ? reinterpret_cast<const std::int64_t*>(key.data()) : nullptr,
                  dropout_number, first_row}};
  const bool plain = c.form == MetricForm::identity;
  const auto key_rows = static_cast<std::size_t>(c.batch * c.heads * c.key_count());
  KernelMemory log2_sum(4 * rows), half_bias(4 * key_rows), delta(4 * rows), row_sum(4 * rows),
      column_sum(4 * key_rows), dq_sum(4 * static_cast<std::size_t>(cuda::metric_dq_sums(in))), dkey(4 * key_rows * k),
      turns(4 * static_cast<std::size_t>(cuda::metric_turns(in))), dmetric(4 * heads * k * k),
      partial(4 * static_cast<std::size_t>(cuda::metric_gradient_parts(in)) * heads * k * k);
  cuda::metric_forward({.in = in,
                        .t = t.data(),
                        .t_strides = t.strides(),
                        .log2_sum = log2_sum.floats(),
                        .q = plain ? nullptr : q.data(),
                        .half_bias = c.distance ? half_bias.floats() : nullptr,
                        .key_q = others && c.distance && !plain ? key_q.data() : nullptr},
                       nullptr);
  cuda::metric_backward({.in = in,
                         .queries = {plain ? p.data() : q.data(), plain ? p.strides() : q.strides(), dp.data(),
                                     dp.strides(), plain ? nullptr : dq.data()},
                         .keys = {plain ? keys.data() : key_q.data(), plain ? keys.strides() : key_q.strides(),
                                  dkeys.data(), dkeys.strides(), plain ? nullptr : key_dq.data()},
                         .t = t.data(),
                         .t_strides = t.strides(),
                         .dt = dt.data(),
                         .dt_strides = dt.strides(),
                         .log2_sum = log2_sum.floats(),
                         .half_bias = half_bias.floats(),
                         .dvalues = c.values ? dvalues.data() : nullptr,
                         .dvalue_strides = dvalues.strides(),
                         .dmetric = plain ? nullptr : dmetric.floats(),
                         .dq_sum = dq_sum.floats(),
                         .dkey = dkey.floats(),
                         .delta = delta.floats(),
                         .row_sum = row_sum.floats(),
                         .column_sum = column_sum.floats(),
                         .turns = reinterpret_cast<unsigned*>(turns.data()),
                         .partial = partial.floats()},
                        nullptr);
  finish_kernels();
  MetricResult result;
  result.t = t.get();
  result.dp = dp.get();
  if (others) result.dkeys = dkeys.get();
  if (c.values) result.dvalues = dvalues.get();
  result.log2_sum.assign(log2_sum.floats(), log2_sum.floats() + rows);
  result.dmetric.assign(dmetric.floats(), dmetric.floats() + heads * k * k);
  reduce_metric_gradient(c, result.dmetric);
  return result;
}

MetricResult solve_exactly(const MetricCase& c) {
  return solve(c, [](const reference::Problem& problem) { return reference::solve_exactly(problem); });
}

MetricResult solve_eagerly(const MetricCase& c) {
  return solve(c, [&](const reference::Problem& problem) {
    return reference::solve_eagerly(
        problem, [&](double x) { return factor(c.element, x); }, [&](double x) { return stored(c.element, x); });
  });
}

double norm(const Values& a) {
  double sum = 0;
  for (const double value : a) sum += std::isinf(value) ? 0 : value * value;
  return std::sqrt(sum);
}

double distance(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += a[i] == b[i] ? 0 : (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

double unit_roundoff(MetricElement element) {
  if (element == MetricElement::bf16) return 0x1p-9;
  return element == MetricElement::fp32 ? 0x1p-25 : 0x1p-12;
}

}  // namespace metaformer
