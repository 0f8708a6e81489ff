#pragma once
// Metric attention for one head of one sequence: in double by the definition, and in a narrow type like an eager
// program that rounds every result. Both have no tiles, tricks or code in common with the kernels.

#include <cmath>
#include <functional>
#include <vector>

namespace metaformer {

using Values = std::vector<double>;

// Numbers [c, k], [c], [k, k] or [e, k] of one head, or of all heads one after another.
struct MetricResult {
  Values t, log2_sum, dp, dmetric;
  Values dkeys;    // empty if the queries are the keys: then dp is the whole gradient
  Values dvalues;  // empty if the values are the keys: then it is part of dkeys
  // For the definition only: sums of the absolute values of the terms. The rounding error of a sum is relative to them.
  Values dp_terms, dkeys_terms, dvalues_terms, dmetric_terms;
  // The same if products cut their terms, and exp2 and log2 have errors of up to 2 units in the last place: an absolute
  // error of a score is a relative error of its weight, and so of every sum with this weight.
  Values t_cut_terms, dp_cut_terms, dkeys_cut_terms, dvalues_cut_terms, log2_sum_cut_terms;
  bool operator==(const MetricResult&) const = default;  // NaN differs from itself
};

namespace reference {

struct Matrix {
  int rows = 0, columns = 0;
  Values data;
  Matrix(int r, int c) : rows(r), columns(c), data(static_cast<std::size_t>(r) * static_cast<std::size_t>(c)) {}
  double& operator()(int r, int c) { return data[static_cast<std::size_t>(r * columns + c)]; }
  double operator()(int r, int c) const { return data[static_cast<std::size_t>(r * columns + c)]; }
};

struct Problem {
  Matrix p;       // [c, k]
  Matrix keys;    // [e, k]: p if the queries are the keys
  Matrix values;  // [e, k]: the keys unless there are own values
  Matrix metric;  // [k, k]
  Matrix dt;      // [c, k]
  double scale = 1;
  bool distance = false;
  bool to_themselves = true;
  bool has_values = false;
  std::function<bool(int query, int key)> visible;
  std::function<double(int query, int key)> kept;  // the factor of dropout
};

// The softmax over the visible keys, and log2 of its denominator, in the arithmetic of Real.
template <class Real>
Matrix softmax(const Matrix& score, const Problem& problem, Values& log2_sum) {
  Matrix weight(score.rows, score.columns);
  for (int i = 0; i < score.rows; ++i) {
    Real maximum = -INFINITY, total = 0;
    for (int j = 0; j < score.columns; ++j)
      if (problem.visible(i, j)) maximum = std::fmax(maximum, static_cast<Real>(score(i, j)));
    for (int j = 0; j < score.columns; ++j) {
      if (!problem.visible(i, j)) continue;
      const auto value = std::exp(static_cast<Real>(score(i, j)) - maximum);
      weight(i, j) = value;
      total += value;
    }
    if (total > 0)
      for (int j = 0; j < score.columns; ++j) weight(i, j) /= total;
    log2_sum.push_back(total > 0 ? (maximum + std::log(total)) / std::log(2) : INFINITY);
  }
  return weight;
}

// |p_i| |M| |p_j| in units of the score; for a distance the terms of the computed form, 2 p_i M p_j - p_j M p_j.
inline double score_terms(const Problem& problem, int i, int j) {
  const auto &p = problem.p, &y = problem.keys;
  double sum = 0;
  for (int a = 0; a < p.columns; ++a)
    for (int b = 0; b < p.columns; ++b)
      sum += std::fabs(problem.metric(a, b) * y(j, b)) *
             (problem.distance ? 2 * std::fabs(p(i, a)) + std::fabs(y(j, a)) : std::fabs(p(i, a)));
  return problem.scale * sum;
}

// By the definition, pair by pair: score_ij = scale p_i M p_j, or -scale (p_i - p_j) M (p_i - p_j).
class ExactSolution {
 public:
  explicit ExactSolution(const Problem& problem) : problem_(problem) {
    const auto zeros = [&](int rows) { return Values(static_cast<std::size_t>(rows * width_)); };
    auto& r = result_;
    r.t = r.dp = r.dp_terms = r.t_cut_terms = r.dp_cut_terms = zeros(tokens_);
    r.dkeys = r.dkeys_terms = r.dkeys_cut_terms = r.dvalues = r.dvalues_terms = r.dvalues_cut_terms = zeros(keys_);
    r.dmetric = r.dmetric_terms = zeros(width_);
    r.log2_sum_cut_terms = Values(static_cast<std::size_t>(tokens_));
    Matrix score(tokens_, keys_);
    for (int i = 0; i < tokens_; ++i)
      for (int j = 0; j < keys_; ++j)
        for (int a = problem.visible(i, j) ? 0 : width_; a < width_; ++a)
          for (int b = 0; b < width_; ++b) score(i, j) += sign_ * left(i, j, a) * problem.metric(a, b) * right(i, j, b);
    weight_ = softmax<double>(score, problem, r.log2_sum);
    for (int i = 0; i < tokens_; ++i) add_scores(i, add_values(i));
    if (!problem.has_values) {
      move_into(r.dkeys, r.dvalues);
      move_into(r.dkeys_terms, r.dvalues_terms);
      move_into(r.dkeys_cut_terms, r.dvalues_cut_terms);
    }
    if (problem.to_themselves) {
      move_into(r.dp, r.dkeys);
      move_into(r.dp_terms, r.dkeys_terms);
      move_into(r.dp_cut_terms, r.dkeys_cut_terms);
    }
  }

  MetricResult result() && { return std::move(result_); }

 private:
  // For one query: the gradients of its weights and the sizes of their terms, by key; their means by the weights; the
  // possible error of each weight if the terms of products are cut.
  struct WeightGradients {
    Values dweight, terms, cut;
    double delta = 0, delta_terms = 0;
  };

  double& at(Values& values, int row, int column) const {
    return values[static_cast<std::size_t>(row * width_ + column)];
  }

  // The left and the right factor of M in the score of a pair.
  double left(int i, int j, int a) const { return problem_.p(i, a) - (problem_.distance ? problem_.keys(j, a) : 0); }
  double right(int i, int j, int a) const {
    return problem_.distance ? problem_.p(i, a) - problem_.keys(j, a) : problem_.keys(j, a);
  }

  static void move_into(Values& to, Values& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    from.clear();
  }

  // The output of query i and the gradients of the values that it mixes.
  WeightGradients add_values(int i) {
    const auto &v = problem_.values, &dt = problem_.dt;
    const auto keys = static_cast<std::size_t>(keys_);
    WeightGradients of{.dweight = Values(keys), .terms = Values(keys), .cut = Values(keys)};
    double largest = 0;
    // Backward computes a weight as a power of 2. The rounding of log2_sum in the exponent is a relative error of the
    // weight.
    const double log2_sum = result_.log2_sum[static_cast<std::size_t>(i)];
    const double of_weight = problem_.has_values && std::isfinite(log2_sum) ? 1 + std::log(2) * std::fabs(log2_sum) : 1;
    auto& log2_sum_cut_terms = result_.log2_sum_cut_terms[static_cast<std::size_t>(i)];
    for (int j = 0; j < keys_; ++j) {
      const double weight = weight_(i, j), kept = problem_.kept(i, j), mixed = kept * weight;
      auto &dweight = of.dweight[static_cast<std::size_t>(j)], &terms = of.terms[static_cast<std::size_t>(j)];
      const double cut = of.cut[static_cast<std::size_t>(j)] = weight == 0 ? 0 : 1 + score_terms(problem_, i, j);
      log2_sum_cut_terms += weight * cut / std::log(2);
      largest = std::fmax(largest, weight);
      for (int a = 0; a < width_; ++a) {
        at(result_.t, i, a) += mixed * v(j, a);
        at(result_.t_cut_terms, i, a) += mixed * cut * std::fabs(v(j, a));
        at(result_.dvalues, j, a) += mixed * dt(i, a);
        at(result_.dvalues_terms, j, a) += mixed * of_weight * std::fabs(dt(i, a));
        at(result_.dvalues_cut_terms, j, a) += mixed * cut * std::fabs(dt(i, a));
        dweight += kept * dt(i, a) * v(j, a);
        terms += kept * std::fabs(dt(i, a) * v(j, a));
      }
      of.delta += weight * dweight;
      of.delta_terms += weight * terms;
    }
    if (largest > 0) log2_sum_cut_terms -= 2 * std::log2(largest);  // log2 of the denominator, at most 1 / largest
    return of;
  }

  // The gradients through the scores of query i.
  void add_scores(int i, const WeightGradients& of) {
    for (int j = 0; j < keys_; ++j) {
      const auto key = static_cast<std::size_t>(j);
      const double dscore = sign_ * weight_(i, j) * (of.dweight[key] - of.delta);
      // With own values the whole gradient of p comes from this difference of two sums.
      const double of_difference =
          problem_.has_values ? of.terms[key] + of.delta_terms : std::fabs(of.dweight[key]) + std::fabs(of.delta);
      const double term = std::fabs(sign_) * weight_(i, j) * of_difference;
      if (term != 0) add_score(i, j, dscore, term, term * of.cut[key]);
    }
  }

  void add_score(int i, int j, double dscore, double term, double cut) {
    const auto &p = problem_.p, &y = problem_.keys, &m = problem_.metric;
    for (int a = 0; a < width_; ++a) {
      double from_left = 0, from_right = 0;  // gradients of the left and right factor of M
      for (int b = 0; b < width_; ++b) {
        from_left += dscore * m(a, b) * right(i, j, b);
        from_right += dscore * m(b, a) * left(i, j, b);
        at(result_.dmetric, a, b) += dscore * left(i, j, a) * right(i, j, b);
        at(result_.dmetric_terms, a, b) += term * std::fabs(p(i, a) * y(j, b));
        const double through_left = std::fabs(m(a, b) * y(j, b)), through_right = std::fabs(m(b, a) * p(i, b));
        at(result_.dp_terms, i, a) += term * through_left;
        at(result_.dkeys_terms, j, a) += term * through_right;
        // The computed form for a distance: 2 M y_j - 2 M p_i, and its negative.
        const double both = 2 * (through_left + through_right);
        at(result_.dp_cut_terms, i, a) += cut * (problem_.distance ? both : through_left);
        at(result_.dkeys_cut_terms, j, a) += cut * (problem_.distance ? both : through_right);
      }
      at(result_.dp, i, a) += problem_.distance ? from_left + from_right : from_left;
      at(result_.dkeys, j, a) += problem_.distance ? -from_left - from_right : from_right;
    }
  }

  const Problem& problem_;
  int tokens_ = problem_.p.rows, keys_ = problem_.keys.rows, width_ = problem_.p.columns;
  double sign_ = problem_.distance ? -problem_.scale : problem_.scale;
  Matrix weight_{0, 0};
  MetricResult result_;
};

using Round = std::function<double(double)>;

// result(a b), with the factors of the hardware and sums in float.
inline Matrix product(const Matrix& a, const Matrix& b, const Round& factor, const Round& result) {
  Matrix c(a.rows, b.columns);
  Matrix x = a, y = b;
  for (auto& value : x.data) value = factor(value);
  for (auto& value : y.data) value = factor(value);
  for (int i = 0; i < a.rows; ++i) {
    for (int j = 0; j < b.columns; ++j) {
      float sum = 0;
      for (int l = 0; l < a.columns; ++l) sum += static_cast<float>(x(i, l)) * static_cast<float>(y(l, j));
      c(i, j) = result(sum);
    }
  }
  return c;
}

inline Matrix transposed(const Matrix& a) {
  Matrix b(a.columns, a.rows);
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < a.columns; ++j) b(j, i) = a(i, j);
  return b;
}

// The tensors that an eager program keeps from its forward pass.
struct EagerScores {
  Matrix q, key_q;       // p M and keys M
  Matrix weight, mixed;  // the softmax, before and after dropout
  Values log2_sum;
};

inline EagerScores score_eagerly(const Problem& problem, double scale, const Round& factor, const Round& result) {
  const auto& y = problem.keys;
  auto q = product(problem.p, problem.metric, factor, result), key_q = product(y, problem.metric, factor, result);
  auto score = product(q, transposed(y), factor, result);
  for (int i = 0; i < score.rows; ++i) {
    for (int j = 0; j < score.columns; ++j) {
      float bias = 0;
      for (int a = 0; problem.distance && a < y.columns; ++a)
        bias += static_cast<float>(key_q(j, a)) * static_cast<float>(y(j, a));
      score(i, j) = result(scale * result(score(i, j) - 0.5 * result(bias)));
    }
  }
  Values log2_sum;
  auto weight = softmax<float>(score, problem, log2_sum);
  for (auto& value : weight.data) value = result(value);
  auto mixed = weight;
  for (int i = 0; i < score.rows; ++i)
    for (int j = 0; j < score.columns; ++j) mixed(i, j) = result(weight(i, j) * problem.kept(i, j));
  return {std::move(q), std::move(key_q), std::move(weight), std::move(mixed), std::move(log2_sum)};
}

// Like an eager program in a narrow type: matrix by matrix, with each result rounded by `result` and factors of
// products by `factor`, by the formulas of docs/metric_attention.md. The *_terms stay empty.
inline MetricResult solve_eagerly(const Problem& problem, const Round& factor, const Round& result) {
  const auto &p = problem.p, &y = problem.keys, &v = problem.values;
  const int tokens = p.rows, keys = y.rows, k = p.columns;
  const auto multiply = [&](const Matrix& a, const Matrix& b) { return product(a, b, factor, result); };
  const auto sum = [&](Matrix a, const Matrix& b) {
    for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] = result(a.data[i] + b.data[i]);
    return a;
  };
  const double scale = (problem.distance ? 2 : 1) * problem.scale;
  const auto [q, key_q, weight, mixed, log2_sum] = score_eagerly(problem, scale, factor, result);
  MetricResult solution{.log2_sum = log2_sum};
  const auto t = multiply(mixed, v);
  solution.t = t.data;
  auto dscore = multiply(problem.dt, transposed(v));
  Values row(static_cast<std::size_t>(tokens)), column(static_cast<std::size_t>(keys));
  for (int i = 0; i < tokens; ++i) {
    float delta = 0;
    for (int a = 0; a < k; ++a) delta += static_cast<float>(t(i, a) * problem.dt(i, a));
    for (int j = 0; j < keys; ++j) {
      dscore(i, j) = result(weight(i, j) * (result(dscore(i, j) * problem.kept(i, j)) - delta));
      if (problem.distance && problem.to_themselves && i == j) dscore(i, j) = 0;
      row[static_cast<std::size_t>(i)] += problem.scale * dscore(i, j);
      column[static_cast<std::size_t>(j)] += problem.scale * dscore(i, j);
      dscore(i, j) = result(scale * dscore(i, j));
    }
  }
  // x -= result(sums y), row by row.
  const auto subtract = [&](Matrix& x, const Values& sums, const Matrix& of) {
    for (int i = 0; problem.distance && i < x.rows; ++i)
      for (int a = 0; a < k; ++a) x(i, a) = result(x(i, a) - result(sums[static_cast<std::size_t>(i)] * of(i, a)));
  };
  auto dq = multiply(dscore, y);
  auto through_keys = multiply(transposed(dscore), q);
  auto through_values = multiply(transposed(mixed), problem.dt);
  if (problem.has_values) {
    solution.dvalues = through_values.data;
    through_values = Matrix(keys, k);
  }
  if (problem.to_themselves) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] += column[i];
    subtract(dq, row, p);
    subtract(through_keys, row, q);
    solution.dp = sum(sum(multiply(dq, transposed(problem.metric)), through_values), through_keys).data;
    solution.dmetric = multiply(transposed(p), dq).data;
    return solution;
  }
  Matrix dkey_q(keys, k), through_queries(tokens, k);
  subtract(dq, row, p);
  subtract(dkey_q, column, y);
  subtract(through_queries, row, q);
  subtract(through_keys, column, key_q);
  solution.dp = sum(multiply(dq, transposed(problem.metric)), through_queries).data;
  solution.dkeys = sum(sum(multiply(dkey_q, transposed(problem.metric)), through_values), through_keys).data;
  solution.dmetric = sum(multiply(transposed(p), dq), multiply(transposed(y), dkey_q)).data;
  return solution;
}

}  // namespace reference

}  // namespace metaformer
