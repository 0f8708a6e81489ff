#include "cuda/projection_case.h"

#include <fmt/format.h>

#include "cuda/kernel_tokens.h"

namespace metaformer {

namespace {

using cuda::MetricForm;

constexpr float epsilon = 1e-6F;

std::size_t size_of(int count) { return static_cast<std::size_t>(count); }

// The drawn inputs of a case, rounded to its type.
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

// The rounding of stored results and of sums in an eager program; in double neither is rounded.
struct Rounding {
  std::function<double(double)> result;
  bool in_float;
  double sum(double a, double b) const { return in_float ? static_cast<float>(a) + static_cast<float>(b) : a + b; }
};

// Solves one token of one head; `at` is the index of its first feature.
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

// Removes results that the case does not have.
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

cuda::MetricRows rows(const Tokens& of) { return {of.data(), of.strides()}; }

// The memory of the kernels. x and own values, which stay NaN, are one projection, and their gradients are another.
class ProjectionMemory {
 public:
  explicit ProjectionMemory(const ProjectionCase& problem) : c_(problem) {
    for (std::size_t i = 0; i < in_.x.size(); ++i) x_.set(place(i), in_.x[i]);
    dq_.set(in_.dq);
    dk_.set(in_.dk);
    dv_.set(in_.dv);
    if (is_dense()) metric_.set(in_.metric);
    for (std::size_t i = 0; c_.form == MetricForm::diagonal && i < heads_ * k_; ++i)
      metric_.set(i, in_.metric[i * k_ + i % k_]);
    for (std::size_t i = 0; i < k_; ++i) gain_.floats()[i] = static_cast<float>(in_.gain[i]);
  }

  cuda::MetricProjection forward() const {
    return {.in = {.element = c_.element,
                   .form = c_.form,
                   .batch = c_.batch,
                   .heads = c_.heads,
                   .width = c_.width,
                   .metric = has_metric() ? metric_.data() : nullptr,
                   .queries = {c_.tokens, x_.data(), x_.strides()}},
            .normalised = c_.normalised,
            .epsilon = epsilon,
            .gain = has_gain() ? gain_.floats() : nullptr,
            .p = c_.normalised ? rows(p_) : cuda::MetricRows{},
            .q = has_metric() ? rows(q_) : cuda::MetricRows{}};
  }

  void run() const {
    const auto projection = forward();
    cuda::metric_project(projection, nullptr);
    const auto parts = c_.parts > 0 ? c_.parts : cuda::metric_projection_parts(projection.in);
    const auto sums = (has_metric() ? k_ : 0) + (has_gain() ? 1 : 0);
    const KernelMemory partial(4 * static_cast<std::size_t>(parts) * heads_ * sums * k_);
    auto* value_part = static_cast<std::uint16_t*>(dprojection_.data()) + heads_ * k_;
    cuda::metric_project_backward(
        {.forward = projection,
         .dq = rows(dq_),
         .dk = rows(dk_),
         .dv = rows(dv_),
         .dx = rows(dprojection_),
         .dvalue = c_.own_values ? cuda::MetricRows{value_part, dprojection_.strides()} : cuda::MetricRows{},
         .dmetric = has_metric() ? dmetric_.floats() : nullptr,
         .dgain = has_gain() ? dgain_.floats() : nullptr,
         .parts = parts,
         .partial = partial.floats()},
        nullptr);
    finish_kernels();
  }

  ProjectionResult result() const {
    ProjectionResult result{.p = p_.get(), .q = q_.get()};
    const auto gradient = dprojection_.get();
    for (std::size_t i = 0; i < in_.x.size(); ++i) {
      result.dx.push_back(gradient[place(i)]);
      if (c_.own_values) result.dvalue.push_back(gradient[place(i) + of_sequence()]);
    }
    result.dmetric.assign(dmetric_.floats(), dmetric_.floats() + heads_ * k_ * k_);
    result.dgain.assign(dgain_.floats(), dgain_.floats() + heads_ * k_);
    leave_out(c_, result);
    return result;
  }

 private:
  bool is_dense() const { return c_.form == MetricForm::dense; }
  bool has_metric() const { return c_.form != MetricForm::identity; }
  bool has_gain() const { return c_.normalised && c_.has_gain; }
  int projections() const { return c_.own_values ? 2 : 1; }
  std::size_t of_sequence() const { return heads_ * size_of(c_.tokens) * k_; }

  // The place of entry i of x in the projection.
  std::size_t place(std::size_t i) const {
    return i + i / of_sequence() * (size_of(projections()) - 1) * of_sequence();
  }

  Tokens tokens() const { return {c_.element, c_.batch, c_.heads, c_.tokens, c_.width, c_.layout}; }
  Tokens projection() const {
    return {c_.element, c_.batch, projections() * c_.heads, c_.tokens, c_.width, Layout::interleaved};
  }

  const ProjectionCase& c_;
  Inputs in_{c_};
  std::size_t k_ = size_of(c_.width), heads_ = size_of(c_.heads);
  Tokens x_ = projection(), dprojection_ = projection();
  Tokens p_ = tokens(), q_ = tokens(), dq_ = tokens(), dk_ = tokens(), dv_ = tokens();
  Tokens metric_{c_.element, c_.heads, 1, is_dense() ? c_.width : 1, c_.width, Layout::contiguous};
  KernelMemory gain_{4 * k_}, dmetric_{4 * heads_ * k_ * k_}, dgain_{4 * heads_ * k_};
};

}  // namespace

std::string ProjectionCase::str() const {
  static constexpr const char* forms[] = {"dense", "diagonal", "identity"};
  return fmt::format("{} {}{}{}{}{} b={} n={} c={} k={} parts={}",
                     element == cuda::MetricElement::bf16 ? "bf16" : "fp16", forms[static_cast<int>(form)],
                     normalised ? " normalised" : "", normalised && has_gain ? " with gain" : "",
                     own_values ? " own values" : "", layout == Layout::contiguous ? " contiguous" : "", batch, heads,
                     tokens, width, parts);
}

ProjectionResult run_projection(const ProjectionCase& problem) {
  const ProjectionMemory memory(problem);
  memory.run();
  return memory.result();
}

ProjectionResult project_exactly(const ProjectionCase& c) {
  return solve(c, {[](double x) { return x; }, /*in_float=*/false});
}

ProjectionResult project_eagerly(const ProjectionCase& c) {
  return solve(c, {[&](double x) { return stored(c.element, x); }, /*in_float=*/true});
}

}  // namespace metaformer
