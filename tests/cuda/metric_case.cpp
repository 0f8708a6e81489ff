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

// The drawn inputs of a case, rounded to its type.
struct Inputs {
  Values p, keys, values, dt, metric;  // the metric is dense for every form
  std::vector<float> kept;             // [b, n, c, e]: the factors of dropout; empty without dropout
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
          for (std::size_t l = 0; c.distance && l < k; ++l)
            value += 0.5 * from(i, l) * from(j, l);  // nearly positive semidefinite
          at(i, j) = stored(c.element, value);
        }
      }
    }
  }

  // Applies the CPU's dropout to a tensor of ones.
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

  // Segments of `count` queries or keys.
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

// For a distance only the symmetric part of M matters, for a diagonal form only the diagonal.
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

// The tensors that both passes of the kernels read and write.
class KernelRun {
 public:
  KernelRun(const MetricCase& c, std::int64_t with_nan) : c_(c) {
    values_.set(inputs_.values);
    if (others_) keys_.set(inputs_.keys);
    p_.set(inputs_.p);
    dt_.set(inputs_.dt);
    if (with_nan >= 0) p_.set(static_cast<std::size_t>(with_nan), std::nan(""));
    const auto k = static_cast<std::size_t>(c.width);
    if (c.form == MetricForm::dense) metric_.set(inputs_.metric);
    for (std::size_t n = 0; c.form == MetricForm::diagonal && n < heads_; ++n)
      for (std::size_t i = 0; i < k; ++i) metric_.set(n * k + i, inputs_.metric[(n * k + i) * k + i]);
    std::memcpy(key_.data(), &dropout_key, 8);
  }

  MetricResult result() {
    const auto in = kernel_inputs();
    const auto rows = static_cast<std::size_t>(c_.batch * c_.heads * c_.tokens),
               form = heads_ * static_cast<std::size_t>(c_.width * c_.width);
    KernelMemory log2_sum(4 * rows), half_bias(4 * key_rows()), dmetric(4 * form);
    cuda::metric_forward({.in = in,
                          .t = t_.data(),
                          .t_strides = t_.strides(),
                          .log2_sum = log2_sum.floats(),
                          .q = plain_ || c_.short_parts > 0 ? nullptr : q_.data(),
                          .half_bias = c_.distance ? half_bias.floats() : nullptr,
                          .key_q = others_ && c_.distance && !plain_ ? key_q_.data() : nullptr},
                         nullptr);
    if (c_.short_parts > 0)
      go_back_shortly(in, log2_sum, dmetric);
    else
      go_back(in, log2_sum, half_bias, dmetric);
    MetricResult result;
    result.t = t_.get();
    result.dp = dp_.get();
    if (others_) result.dkeys = dkeys_.get();
    if (c_.values) result.dvalues = dvalues_.get();
    result.log2_sum.assign(log2_sum.floats(), log2_sum.floats() + rows);
    result.dmetric.assign(dmetric.floats(), dmetric.floats() + form);
    reduce_metric_gradient(c_, result.dmetric);
    return result;
  }

 private:
  Tokens of_queries(Layout layout) const { return {c_.element, c_.batch, c_.heads, c_.tokens, c_.width, layout}; }
  Tokens of_keys(Layout layout) const { return {c_.element, c_.batch, c_.heads, c_.keys, c_.width, layout}; }
  Tokens of_values() const { return {c_.element, c_.batch, c_.heads, c_.key_count(), c_.width, c_.layout}; }
  std::size_t key_rows() const { return static_cast<std::size_t>(c_.batch * c_.heads * c_.key_count()); }

  static const std::int32_t* given(KernelMemory& memory, const std::vector<std::int32_t>& values) {
    if (values.empty()) return nullptr;
    std::memcpy(memory.data(), values.data(), 4 * values.size());
    return reinterpret_cast<const std::int32_t*>(memory.data());
  }

  cuda::MetricInputs kernel_inputs() {
    const cuda::MetricSide queries{c_.tokens, p_.data(), p_.strides(), given(segments_, inputs_.segments)};
    return {.element = c_.element,
            .form = c_.form,
            .distance = c_.distance,
            .causal = c_.causal,
            .batch = c_.batch,
            .heads = c_.heads,
            .width = c_.width,
            .scale = 1 / std::sqrt(static_cast<float>(c_.width)),
            .metric = plain_ ? nullptr : metric_.data(),
            .queries = queries,
            .keys = others_ ? cuda::MetricSide{c_.keys, keys_.data(), keys_.strides(),
                                               given(key_segments_, inputs_.key_segments)}
                            : queries,
            .to_themselves = !others_,
            .values = c_.values ? values_.data() : nullptr,
            .value_strides = values_.strides(),
            .dropout = {c_.dropout, c_.dropout > 0 ? reinterpret_cast<const std::int64_t*>(key_.data()) : nullptr,
                        dropout_number, first_row}};
  }

  void go_back(const cuda::MetricInputs& in, KernelMemory& log2_sum, KernelMemory& half_bias, KernelMemory& dmetric) {
    const auto rows = static_cast<std::size_t>(c_.batch * c_.heads * c_.tokens), k = static_cast<std::size_t>(c_.width);
    KernelMemory delta(4 * rows), row_sum(4 * rows), column_sum(4 * key_rows()),
        dq_sum(4 * static_cast<std::size_t>(cuda::metric_dq_sums(in))), dkey(4 * key_rows() * k),
        turns(4 * static_cast<std::size_t>(cuda::metric_turns(in))),
        partial(4 * static_cast<std::size_t>(cuda::metric_gradient_parts(in)) * heads_ * k * k);
    cuda::metric_backward({.in = in,
                           .queries = {plain_ ? p_.data() : q_.data(), plain_ ? p_.strides() : q_.strides(), dp_.data(),
                                       dp_.strides(), plain_ ? nullptr : dq_.data()},
                           .keys = {plain_ ? keys_.data() : key_q_.data(), plain_ ? keys_.strides() : key_q_.strides(),
                                    dkeys_.data(), dkeys_.strides(), plain_ ? nullptr : key_dq_.data()},
                           .t = t_.data(),
                           .t_strides = t_.strides(),
                           .dt = dt_.data(),
                           .dt_strides = dt_.strides(),
                           .log2_sum = log2_sum.floats(),
                           .half_bias = half_bias.floats(),
                           .dvalues = c_.values ? dvalues_.data() : nullptr,
                           .dvalue_strides = dvalues_.strides(),
                           .dmetric = plain_ ? nullptr : dmetric.floats(),
                           .dq_sum = dq_sum.floats(),
                           .dkey = dkey.floats(),
                           .delta = delta.floats(),
                           .row_sum = row_sum.floats(),
                           .column_sum = column_sum.floats(),
                           .turns = reinterpret_cast<unsigned*>(turns.data()),
                           .partial = partial.floats()},
                          nullptr);
    finish_kernels();
  }

  void go_back_shortly(const cuda::MetricInputs& in, KernelMemory& log2_sum, KernelMemory& dmetric) {
    const auto k = static_cast<std::size_t>(c_.width);
    KernelMemory partial(plain_ ? 0 : 4 * static_cast<std::size_t>(c_.short_parts) * heads_ * k * k);
    cuda::metric_short_backward({.in = in,
                                 .queries = {.dp = dp_.data(), .dp_strides = dp_.strides()},
                                 .t = t_.data(),
                                 .t_strides = t_.strides(),
                                 .dt = dt_.data(),
                                 .dt_strides = dt_.strides(),
                                 .log2_sum = log2_sum.floats(),
                                 .dvalues = c_.values ? dvalues_.data() : nullptr,
                                 .dvalue_strides = dvalues_.strides(),
                                 .dmetric = plain_ ? nullptr : dmetric.floats(),
                                 .partial = partial.floats()},
                                c_.short_parts, nullptr);
    finish_kernels();
  }

  MetricCase c_;
  Inputs inputs_{c_};
  bool others_ = c_.keys > 0, plain_ = c_.form == MetricForm::identity;
  std::size_t heads_ = static_cast<std::size_t>(c_.heads);
  Tokens p_ = of_queries(c_.layout), dt_ = of_queries(c_.layout), t_ = of_queries(Layout::interleaved),
         q_ = of_queries(Layout::contiguous), dq_ = of_queries(Layout::contiguous), dp_ = of_queries(c_.layout);
  Tokens keys_ = of_keys(c_.layout), key_q_ = of_keys(Layout::contiguous), key_dq_ = of_keys(Layout::contiguous),
         dkeys_ = of_keys(c_.layout);
  Tokens values_ = of_values(), dvalues_ = of_values();
  // The metric as [b = n, n = 1, c = its rows, k].
  Tokens metric_{c_.element, c_.heads, 1, c_.form == MetricForm::dense ? c_.width : 1, c_.width, Layout::contiguous};
  KernelMemory key_{8}, segments_{4 * inputs_.segments.size()}, key_segments_{4 * inputs_.key_segments.size()};
};

}  // namespace

std::string MetricCase::str() const {
  static constexpr const char *elements[] = {"bf16", "fp16", "tf32", "fp32"},
                              *forms[] = {"dense", "diagonal", "identity"},
                              *masks[] = {"no mask", "padding", "blocks", "all padding"},
                              *layouts[] = {"contiguous", "interleaved", "unaligned"};
  return fmt::format("{} {}{}{}{} {} {} b={} n={} c={} e={} k={} spread={} seed={}{} dropout={} short parts={}",
                     elements[static_cast<int>(element)], symmetric ? "" : "general ", forms[static_cast<int>(form)],
                     distance ? " distance" : "", values ? " own values" : "", masks[static_cast<int>(mask)],
                     layouts[static_cast<int>(layout)], batch, heads, tokens, key_count(), width, spread, seed,
                     causal ? " causal" : "", dropout, short_parts);
}

MetricResult run_kernels(const MetricCase& c, std::int64_t with_nan) { return KernelRun(c, with_nan).result(); }

MetricResult solve_exactly(const MetricCase& c) {
  return solve(c, [](const reference::Problem& problem) { return reference::ExactSolution(problem).result(); });
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
