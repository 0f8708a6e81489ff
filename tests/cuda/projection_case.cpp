#include "cuda/projection_case.h"

#include <fmt/format.h>

#include "cuda/kernel_tokens.h"

namespace metaformer {

namespace {

using cuda::MetricForm;

constexpr float epsilon = 1e-6F;

std::size_t size_of(int count) { return static_cast<std::size_t>(count); }

// What is drawn for a case, as it is stored.
struct Inputs {
  Values x, dq, dk, dv;  // [b, n, c, k]
  Values metric;         // [n, k, k], whatever the form; not symmetric
  Values gain;           // [k]

  explicit Inputs(const ProjectionCase& c) : gain(size_of(c.width), 1) {
    const auto all = size_of(c.batch * c.heads * c.tokens * c.width), k = size_of(c.width);
    const auto draw = [&](std::uint64_t stream, std::size_t count, double spread) {
      return normal_values(c.element, c.seed, stream, count, spread);
    };
    x = draw(1, all, c.spread);
    dq = draw(2, all, 1);
    dk = draw(3, all, 1);
    dv = draw(4, all, 1);
    metric = draw(5, size_of(c.heads) * k * k, 1 / std::sqrt(static_cast<double>(c.width)));
    for (std::size_t i = 0; i < metric.size(); ++i) {
      const bool on_diagonal = i / k % k == i % k;
      if (c.form == MetricForm::identity) metric[i] = on_diagonal ? 1 : 0;
      if (c.form == MetricForm::diagonal) metric[i] = on_diagonal ? stored(c.element, metric[i] + 1) : 0;
    }
    for (std::size_t i = 0; c.normalised && c.has_gain && i < k; ++i)
      gain[i] = static_cast<float>(1 + 0.5 * std::sin(static_cast<double>(i)));
  }
};

// Rounding to what an eager program stores, and the sums of its products; neither rounds in double.
struct Rounding {
  std::function<double(double)> result;
  bool in_float;
  double sum(double a, double b) const { return in_float ? static_cast<float>(a) + static_cast<float>(b) : a + b; }
};

// One token of one head; `at` is the place of its first feature.
class TokenSolver {
 public:
  TokenSolver(const ProjectionCase& problem, const Inputs& inputs, const Rounding& rounding)
      : c_(problem), in_(inputs), round_(rounding), k_(size_of(problem.width)) {}

  void solve(ProjectionResult& result, std::size_t head, std::size_t at) {
    double squares = 0;
    for (std::size_t i = 0; i < k_; ++i) squares = round_.sum(squares, in_.x[at + i] * in_.x[at + i]);
    factor_ = c_.normalised ? 1 / std::sqrt(squares / static_cast<double>(k_) + epsilon) : 1;
    for (std::size_t i = 0; i < k_; ++i) result.p[at + i] = round_.result(in_.x[at + i] * factor_ * in_.gain[i]);
    const auto m = [&](std::size_t i, std::size_t j) { return in_.metric[(head * k_ + i) * k_ + j]; };
    Values dp(k_);
    for (std::size_t i = 0; i < k_; ++i) {
      double q = 0, through = 0;
      for (std::size_t j = 0; j < k_; ++j) {
        q = round_.sum(q, result.p[at + j] * m(j, i));
        through = round_.sum(through, in_.dq[at + j] * m(i, j));
        auto& dmetric = result.dmetric[(head * k_ + i) * k_ + j];
        dmetric = round_.sum(dmetric, result.p[at + i] * in_.dq[at + j]);
      }
      result.q[at + i] = round_.result(q);
      dp[i] = round_.result(round_.result(through) + in_.dk[at + i]);
      if (!c_.own_values) dp[i] = round_.result(dp[i] + in_.dv[at + i]);
    }
    go_back(result, dp, head, at);
  }

 private:
  // dx_j = sum_i dp_i gain_i d(x_i f) / dx_j,  d(x_i f) / dx_j = (i = j) f - x_i x_j f^3 / k.
  void go_back(ProjectionResult& result, const Values& dp, std::size_t head, std::size_t at) const {
    const double cube = c_.normalised ? factor_ * factor_ * factor_ / static_cast<double>(k_) : 0;
    for (std::size_t j = 0; j < k_; ++j) {
      double dx = 0;
      for (std::size_t i = 0; i < k_; ++i)
        dx = round_.sum(dx, dp[i] * in_.gain[i] * ((i == j ? factor_ : 0) - in_.x[at + i] * in_.x[at + j] * cube));
      result.dx[at + j] = round_.result(dx);
      auto& dgain = result.dgain[head * k_ + j];
      dgain = round_.sum(dgain, dp[j] * in_.x[at + j] * factor_);
    }
  }

  const ProjectionCase& c_;
  const Inputs& in_;
  const Rounding& round_;
  std::size_t k_;
  double factor_ = 1;
};

// What a case has no result of is left out.
void leave_out(const ProjectionCase& c, ProjectionResult& result) {
  const auto k = size_of(c.width);
  for (std::size_t i = 0; c.form == MetricForm::diagonal && i < result.dmetric.size(); ++i)
    if (i / k % k != i % k) result.dmetric[i] = 0;
  if (!c.own_values) result.dvalue.clear();
  if (!c.normalised) result.p.clear();
  if (!c.normalised || !c.has_gain) result.dgain.clear();
  if (c.form == MetricForm::identity) {
    result.q.clear();
    result.dmetric.clear();
  }
}

ProjectionResult solve(const ProjectionCase& c, const Rounding& rounding) {
  const Inputs inputs(c);
  const auto k = size_of(c.width), heads = size_of(c.heads), all = inputs.x.size();
  ProjectionResult result{.p = Values(all),
                          .q = Values(all),
                          .dx = Values(all),
                          .dvalue = inputs.dv,
                          .dmetric = Values(heads * k * k),
                          .dgain = Values(heads * k)};
  TokenSolver solver(c, inputs, rounding);
  for (std::size_t at = 0; at < all; at += k) solver.solve(result, at / k / size_of(c.tokens) % heads, at);
  for (auto& value : result.dmetric) value = rounding.result(value);
  leave_out(c, result);
  return result;
}

}  // namespace

std::string ProjectionCase::str() const {
  static constexpr const char* forms[] = {"dense", "diagonal", "identity"};
  return fmt::format("{} {}{}{}{}{} b={} n={} c={} k={} parts={}",
                     element == cuda::MetricElement::bf16 ? "bf16" : "fp16", forms[static_cast<int>(form)],
                     normalised ? " normalised" : "", normalised && has_gain ? " with gain" : "",
                     own_values ? " own values" : "", layout == Layout::contiguous ? " contiguous" : "", batch, heads,
                     tokens, width, parts);
}

ProjectionResult run_projection(const ProjectionCase& c) {
  const Inputs inputs(c);
  const auto k = size_of(c.width), heads = size_of(c.heads), of_head = size_of(c.tokens) * k;
  // x and the values as one projection, whose value part stays NaN.
  const int parts_of_token = c.own_values ? 2 : 1;
  const auto projection = [&] {
    return Tokens(c.element, c.batch, parts_of_token * c.heads, c.tokens, c.width, Layout::interleaved);
  };
  const auto tokens = [&] { return Tokens(c.element, c.batch, c.heads, c.tokens, c.width, c.layout); };
  auto x = projection(), dprojection = projection();
  const auto place = [&](std::size_t i) {
    return i + i / (heads * of_head) * (size_of(parts_of_token) - 1) * heads * of_head;
  };
  for (std::size_t i = 0; i < inputs.x.size(); ++i) x.set(place(i), inputs.x[i]);
  auto p = tokens(), q = tokens(), dq = tokens(), dk = tokens(), dv = tokens();
  dq.set(inputs.dq);
  dk.set(inputs.dk);
  dv.set(inputs.dv);
  const auto rows = [](const Tokens& of) { return cuda::MetricRows{of.data(), of.strides()}; };

  const bool is_dense = c.form == MetricForm::dense, plain = c.form == MetricForm::identity;
  Tokens metric(c.element, c.heads, 1, is_dense ? c.width : 1, c.width, Layout::contiguous);
  if (is_dense) metric.set(inputs.metric);
  for (std::size_t i = 0; c.form == MetricForm::diagonal && i < heads * k; ++i)
    metric.set(i, inputs.metric[i * k + i % k]);
  const bool has_gain = c.normalised && c.has_gain;
  KernelMemory gain(4 * k), dmetric(4 * heads * k * k), dgain(4 * heads * k);
  for (std::size_t i = 0; i < k; ++i) gain.floats()[i] = static_cast<float>(inputs.gain[i]);

  const cuda::MetricProjection forward{.in = {.element = c.element,
                                              .form = c.form,
                                              .batch = c.batch,
                                              .heads = c.heads,
                                              .width = c.width,
                                              .metric = plain ? nullptr : metric.data(),
                                              .queries = {c.tokens, x.data(), x.strides()}},
                                       .normalised = c.normalised,
                                       .epsilon = epsilon,
                                       .gain = has_gain ? gain.floats() : nullptr,
                                       .p = c.normalised ? rows(p) : cuda::MetricRows{},
                                       .q = plain ? cuda::MetricRows{} : rows(q)};
  cuda::metric_project(forward, nullptr);
  const auto parts = c.parts > 0 ? c.parts : cuda::metric_projection_parts(forward.in);
  const auto sums = (plain ? 0 : k) + (has_gain ? 1 : 0);
  const KernelMemory partial(4 * size_of(static_cast<int>(parts)) * heads * sums * k);
  auto* value_part = static_cast<std::uint16_t*>(dprojection.data()) + heads * k;
  cuda::metric_project_backward(
      {.forward = forward,
       .dq = rows(dq),
       .dk = rows(dk),
       .dv = rows(dv),
       .dx = rows(dprojection),
       .dvalue = c.own_values ? cuda::MetricRows{value_part, dprojection.strides()} : cuda::MetricRows{},
       .dmetric = plain ? nullptr : dmetric.floats(),
       .dgain = has_gain ? dgain.floats() : nullptr,
       .parts = parts,
       .partial = partial.floats()},
      nullptr);
  finish_kernels();
  ProjectionResult result{.p = p.get(), .q = q.get()};
  const auto gradient = dprojection.get();
  for (std::size_t i = 0; i < inputs.x.size(); ++i) {
    result.dx.push_back(gradient[place(i)]);
    if (c.own_values) result.dvalue.push_back(gradient[place(i) + heads * of_head]);
  }
  result.dmetric.assign(dmetric.floats(), dmetric.floats() + heads * k * k);
  result.dgain.assign(dgain.floats(), dgain.floats() + heads * k);
  leave_out(c, result);
  return result;
}

ProjectionResult project_exactly(const ProjectionCase& c) {
  return solve(c, {[](double x) { return x; }, /*in_float=*/false});
}

ProjectionResult project_eagerly(const ProjectionCase& c) {
  return solve(c, {[&](double x) { return stored(c.element, x); }, /*in_float=*/true});
}

}  // namespace metaformer
