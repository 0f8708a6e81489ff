#pragma once
// Metric attention written out: in double from the definition, and in any narrow type as an eager program would run it,
// every result rounded. Both without tiles, tricks or code in common with the kernels. One head of one sequence.

#include <cmath>
#include <functional>
#include <vector>

namespace metaformer::reference {

struct Matrix {
  int rows = 0, columns = 0;
  std::vector<double> data;
  Matrix(int r, int c) : rows(r), columns(c), data(static_cast<std::size_t>(r) * static_cast<std::size_t>(c)) {}
  double& operator()(int r, int c) { return data[static_cast<std::size_t>(r * columns + c)]; }
  double operator()(int r, int c) const { return data[static_cast<std::size_t>(r * columns + c)]; }
};

struct Problem {
  Matrix p;       // [c, k]
  Matrix keys;    // [e, k]: p again where tokens look at themselves
  Matrix metric;  // [k, k]
  Matrix dt;      // [c, k]
  double scale = 1;
  bool distance = false;
  bool to_themselves = true;
  std::function<bool(int query, int key)> visible;
  std::function<double(int query, int key)> kept;  // what dropout multiplies a weight with
};

struct Solution {
  Matrix t, dp, dmetric;
  Matrix dkeys;  // 0 rows where tokens look at themselves: all is in dp
  std::vector<double> log2_sum;
  // With every term of their sums taken positive: what rounding in a sum is relative to.
  Matrix dp_terms, dkeys_terms, dmetric_terms;
  // The same where products cut their terms and exp2 and log2 are off by up to 2 units in the last place: an error of a
  // score is a relative one of its weight, and so one of everything that weights are in.
  Matrix t_cut_terms, dp_cut_terms, dkeys_cut_terms;
  std::vector<double> log2_sum_cut_terms;
};

inline Solution empty_solution(int tokens, int keys, int k) {
  return {.t = Matrix(tokens, k),
          .dp = Matrix(tokens, k),
          .dmetric = Matrix(k, k),
          .dkeys = Matrix(keys, k),
          .log2_sum = {},
          .dp_terms = Matrix(tokens, k),
          .dkeys_terms = Matrix(keys, k),
          .dmetric_terms = Matrix(k, k),
          .t_cut_terms = Matrix(tokens, k),
          .dp_cut_terms = Matrix(tokens, k),
          .dkeys_cut_terms = Matrix(keys, k),
          .log2_sum_cut_terms = std::vector<double>(static_cast<std::size_t>(tokens))};
}

inline void add(Matrix& to, Matrix& from) {
  for (std::size_t i = 0; i < to.data.size(); ++i) to.data[i] += from.data[i];
  from = Matrix(0, from.columns);
}

// softmax over what is visible, and log2 of its denominator, in the arithmetic of Real.
template <class Real>
Matrix softmax(const Matrix& score, const Problem& problem, std::vector<double>& log2_sum) {
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

// |p_i| |M| |p_j| in units of the score: of a distance as it is computed, 2 p_i M p_j - p_j M p_j.
inline double score_terms(const Problem& problem, int i, int j) {
  const auto &p = problem.p, &y = problem.keys;
  double sum = 0;
  for (int a = 0; a < p.columns; ++a)
    for (int b = 0; b < p.columns; ++b)
      sum += std::fabs(problem.metric(a, b) * y(j, b)) *
             (problem.distance ? 2 * std::fabs(p(i, a)) + std::fabs(y(j, a)) : std::fabs(p(i, a)));
  return problem.scale * sum;
}

inline void add_score_terms(const Problem& problem, const Matrix& weight, Solution& solution) {
  for (int i = 0; i < weight.rows; ++i) {
    double largest = 0;  // its inverse is the sum that log2 is taken of
    for (int j = 0; j < weight.columns; ++j) largest = std::fmax(largest, weight(i, j));
    if (largest > 0) solution.log2_sum_cut_terms[static_cast<std::size_t>(i)] = -2 * std::log2(largest);
    for (int j = 0; j < weight.columns; ++j) {
      if (weight(i, j) == 0) continue;
      const double terms = weight(i, j) * (1 + score_terms(problem, i, j));
      solution.log2_sum_cut_terms[static_cast<std::size_t>(i)] += terms / std::log(2);
      for (int a = 0; a < problem.p.columns; ++a)
        solution.t_cut_terms(i, a) += terms * problem.kept(i, j) * std::fabs(problem.keys(j, a));
    }
  }
}

// From the definition, pair by pair: score_ij = scale p_i M p_j, or -scale (p_i - p_j) M (p_i - p_j).
inline Solution solve_exactly(const Problem& problem) {
  const auto &p = problem.p, &y = problem.keys;
  const int tokens = p.rows, keys = y.rows, k = p.columns;
  auto solution = empty_solution(tokens, keys, k);
  Matrix score(tokens, keys);
  // What multiplies M from the left and from the right in the score of a pair.
  const auto left = [&](int i, int j, int a) { return problem.distance ? p(i, a) - y(j, a) : p(i, a); };
  const auto right = [&](int i, int j, int a) { return problem.distance ? p(i, a) - y(j, a) : y(j, a); };
  const double sign = problem.distance ? -problem.scale : problem.scale;
  for (int i = 0; i < tokens; ++i)
    for (int j = 0; j < keys; ++j)
      for (int a = 0; a < k; ++a)
        for (int b = 0; b < k; ++b) score(i, j) += sign * left(i, j, a) * problem.metric(a, b) * right(i, j, b);
  const auto weight = softmax<double>(score, problem, solution.log2_sum);
  add_score_terms(problem, weight, solution);
  for (int i = 0; i < tokens; ++i) {
    std::vector<double> dweight(static_cast<std::size_t>(keys));
    double delta = 0;
    for (int j = 0; j < keys; ++j) {
      const double kept = problem.kept(i, j), mixed = kept * weight(i, j);
      const double cut = mixed == 0 ? 0 : mixed * (1 + score_terms(problem, i, j));
      for (int a = 0; a < k; ++a) {
        solution.t(i, a) += mixed * y(j, a);
        solution.dkeys(j, a) += mixed * problem.dt(i, a);
        solution.dkeys_terms(j, a) += mixed * std::fabs(problem.dt(i, a));
        solution.dkeys_cut_terms(j, a) += cut * std::fabs(problem.dt(i, a));
        dweight[static_cast<std::size_t>(j)] += kept * problem.dt(i, a) * y(j, a);
      }
      delta += weight(i, j) * dweight[static_cast<std::size_t>(j)];
    }
    for (int j = 0; j < keys; ++j) {
      const double dweight_ij = dweight[static_cast<std::size_t>(j)],
                   dscore = sign * weight(i, j) * (dweight_ij - delta);
      const double term = std::fabs(sign) * weight(i, j) * (std::fabs(dweight_ij) + std::fabs(delta));
      if (term == 0) continue;
      const double cut = term * (1 + score_terms(problem, i, j));
      for (int a = 0; a < k; ++a) {
        double from_left = 0, from_right = 0;  // gradients of what stands left and right of M
        for (int b = 0; b < k; ++b) {
          from_left += dscore * problem.metric(a, b) * right(i, j, b);
          from_right += dscore * problem.metric(b, a) * left(i, j, b);
          solution.dmetric(a, b) += dscore * left(i, j, a) * right(i, j, b);
          solution.dmetric_terms(a, b) += term * std::fabs(p(i, a) * y(j, b));
          const double through_left = std::fabs(problem.metric(a, b) * y(j, b)),
                       through_right = std::fabs(problem.metric(b, a) * p(i, b));
          solution.dp_terms(i, a) += term * through_left;
          solution.dkeys_terms(j, a) += term * through_right;
          // Of a distance as it is computed: 2 M y_j - 2 M p_i, and the negative of it.
          const double both = 2 * (through_left + through_right);
          solution.dp_cut_terms(i, a) += cut * (problem.distance ? both : through_left);
          solution.dkeys_cut_terms(j, a) += cut * (problem.distance ? both : through_right);
        }
        if (problem.distance) {
          solution.dp(i, a) += from_left + from_right;
          solution.dkeys(j, a) -= from_left + from_right;
        } else {
          solution.dp(i, a) += from_left;
          solution.dkeys(j, a) += from_right;
        }
      }
    }
  }
  if (problem.to_themselves) {
    add(solution.dp, solution.dkeys);
    add(solution.dp_terms, solution.dkeys_terms);
    add(solution.dp_cut_terms, solution.dkeys_cut_terms);
  }
  return solution;
}

using Round = std::function<double(double)>;

// R(a b), with factors as the hardware takes them and the sum in float.
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

// As an eager program in a narrow type: matrix by matrix, each result rounded by `result`, factors of products by
// `factor`. The formulas are those of docs/metric_attention.md.
inline Solution solve_eagerly(const Problem& problem, const Round& factor, const Round& result) {
  const auto &p = problem.p, &y = problem.keys;
  const int tokens = p.rows, keys = y.rows, k = p.columns;
  const auto multiply = [&](const Matrix& a, const Matrix& b) { return product(a, b, factor, result); };
  const double scale = (problem.distance ? 2 : 1) * problem.scale;
  const auto q = multiply(p, problem.metric), key_q = multiply(y, problem.metric);
  auto score = multiply(q, transposed(y));
  for (int i = 0; i < tokens; ++i) {
    for (int j = 0; j < keys; ++j) {
      float bias = 0;
      for (int a = 0; problem.distance && a < k; ++a)
        bias += static_cast<float>(key_q(j, a)) * static_cast<float>(y(j, a));
      score(i, j) = result(scale * result(score(i, j) - 0.5 * result(bias)));
    }
  }
  auto solution = empty_solution(tokens, keys, k);
  auto weight = softmax<float>(score, problem, solution.log2_sum);
  for (auto& value : weight.data) value = result(value);
  auto mixed = weight;
  for (int i = 0; i < tokens; ++i)
    for (int j = 0; j < keys; ++j) mixed(i, j) = result(weight(i, j) * problem.kept(i, j));
  solution.t = multiply(mixed, y);
  auto dscore = multiply(problem.dt, transposed(y));
  std::vector<double> row(static_cast<std::size_t>(tokens)), column(static_cast<std::size_t>(keys));
  for (int i = 0; i < tokens; ++i) {
    float delta = 0;
    for (int a = 0; a < k; ++a) delta += static_cast<float>(solution.t(i, a) * problem.dt(i, a));
    for (int j = 0; j < keys; ++j) {
      dscore(i, j) = result(weight(i, j) * (result(dscore(i, j) * problem.kept(i, j)) - delta));
      if (problem.distance && problem.to_themselves && i == j) dscore(i, j) = 0;
      row[static_cast<std::size_t>(i)] += problem.scale * dscore(i, j);
      column[static_cast<std::size_t>(j)] += problem.scale * dscore(i, j);
      dscore(i, j) = result(scale * dscore(i, j));
    }
  }
  auto dq = multiply(dscore, y);
  auto through_keys = multiply(transposed(dscore), q);
  // x -= R(sums y), row by row.
  const auto subtract = [&](Matrix& x, const std::vector<double>& sums, const Matrix& of) {
    for (int i = 0; problem.distance && i < x.rows; ++i)
      for (int a = 0; a < k; ++a) x(i, a) = result(x(i, a) - result(sums[static_cast<std::size_t>(i)] * of(i, a)));
  };
  const auto through_values = multiply(transposed(mixed), problem.dt);
  const auto add_keys = [&](Matrix& to) {
    for (std::size_t i = 0; i < to.data.size(); ++i)
      to.data[i] = result(result(to.data[i] + through_values.data[i]) + through_keys.data[i]);
  };
  if (problem.to_themselves) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] += column[i];
    subtract(dq, row, p);
    subtract(through_keys, row, q);
    solution.dp = multiply(dq, transposed(problem.metric));
    add_keys(solution.dp);
    solution.dmetric = multiply(transposed(p), dq);
    solution.dkeys = Matrix(0, k);
    return solution;
  }
  Matrix dkey_q(keys, k), through_queries(tokens, k);
  subtract(dq, row, p);
  subtract(dkey_q, column, y);
  subtract(through_queries, row, q);
  subtract(through_keys, column, key_q);
  solution.dp = multiply(dq, transposed(problem.metric));
  for (std::size_t i = 0; i < solution.dp.data.size(); ++i)
    solution.dp.data[i] = result(solution.dp.data[i] + through_queries.data[i]);
  solution.dkeys = multiply(dkey_q, transposed(problem.metric));
  add_keys(solution.dkeys);
  const auto of_queries = multiply(transposed(p), dq), of_keys = multiply(transposed(y), dkey_q);
  for (std::size_t i = 0; i < of_keys.data.size(); ++i)
    solution.dmetric.data[i] = result(of_queries.data[i] + of_keys.data[i]);
  return solution;
}

}  // namespace metaformer::reference
