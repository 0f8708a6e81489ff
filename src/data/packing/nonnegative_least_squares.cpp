#include "data/packing/nonnegative_least_squares.h"

#include <algorithm>
#include <cmath>

namespace metaformer {

namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// The columns that may be above 0, with the Cholesky factor of their products.
class PassiveSet {
 public:
  PassiveSet(const std::vector<SparseColumn>& columns, std::size_t rows) : columns_(columns), dense_(rows) {}

  const std::vector<std::size_t>& members() const { return members_; }

  // False: the column is a combination of the others.
  bool add(std::size_t column) {
    for (const auto& entry : columns_[column]) dense_[static_cast<std::size_t>(entry.row)] = entry.value;
    const double square = times_dense(column);
    Vector row;
    for (const auto member : members_) row.push_back(times_dense(member));
    for (const auto& entry : columns_[column]) dense_[static_cast<std::size_t>(entry.row)] = 0;
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = (row[i] - dot(row, factor_[i], i)) / factor_[i][i];
    const double rest = square - dot(row, row, row.size());
    if (rest < 1e-10 * square) return false;
    row.push_back(std::sqrt(rest));
    factor_.push_back(std::move(row));
    members_.push_back(column);
    return true;
  }

  // Keeps those of these numbers for which `keep` holds; what is behind the first that goes is computed again.
  template <class Keep>
  void keep_if(Keep keep) {
    std::size_t first = 0;
    while (first < members_.size() && keep(first)) ++first;
    std::vector<std::size_t> behind;
    for (auto i = first; i < members_.size(); ++i)
      if (keep(i)) behind.push_back(members_[i]);
    members_.resize(first);
    factor_.resize(first);
    for (const auto column : behind) add(column);
  }

  // Of A z = b for the members, by their order.
  Vector solve(const Vector& b) const {
    Vector z;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      double product = 0;
      for (const auto& entry : columns_[members_[i]]) product += entry.value * b[static_cast<std::size_t>(entry.row)];
      z.push_back((product - dot(factor_[i], z, i)) / factor_[i][i]);
    }
    for (auto i = z.size(); i-- > 0;) {
      z[i] /= factor_[i][i];
      for (std::size_t j = 0; j < i; ++j) z[j] -= factor_[i][j] * z[i];
    }
    return z;
  }

 private:
  double times_dense(std::size_t column) const {
    double sum = 0;
    for (const auto& entry : columns_[column]) sum += entry.value * dense_[static_cast<std::size_t>(entry.row)];
    return sum;
  }

  const std::vector<SparseColumn>& columns_;
  std::vector<std::size_t> members_;
  std::vector<Vector> factor_;  // lower triangle, by rows
  Vector dense_;
};

// How far x may go towards z so that none of the members falls below 0.
double longest_step(const Vector& x, const Vector& z, const std::vector<std::size_t>& members) {
  double step = 1;
  for (std::size_t i = 0; i < members.size(); ++i)
    if (const double from = x[members[i]]; z[i] <= 0) step = std::min(step, from / (from - z[i]));
  return step;
}

// b - A x.
Vector residual_of(const std::vector<SparseColumn>& columns, Vector b, const Vector& x,
                   const std::vector<std::size_t>& members) {
  for (const auto j : members)
    for (const auto& entry : columns[j]) b[static_cast<std::size_t>(entry.row)] -= entry.value * x[j];
  return b;
}

double slope(const SparseColumn& column, const Vector& residual) {
  double sum = 0;
  for (const auto& entry : column) sum += entry.value * residual[static_cast<std::size_t>(entry.row)];
  return sum;
}

// Goes to the least squares of the members, without those that come to 0 on the way.
void settle(PassiveSet& passive, const Vector& b, double nothing, Vector& x) {
  while (true) {
    const auto z = passive.solve(b);
    const auto& members = passive.members();
    const double step = longest_step(x, z, members);
    const bool all_stay = std::all_of(z.begin(), z.end(), [](double value) { return value > 0; });
    std::vector<bool> stays(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
      auto& value = x[members[i]];
      value = all_stay ? z[i] : value + step * (z[i] - value);
      stays[i] = z[i] > 0 || value > 1e-3 * nothing;
      if (!stays[i]) value = 0;
    }
    if (all_stay) return;
    passive.keep_if([&](std::size_t i) { return stays[i]; });
  }
}

}  // namespace

std::vector<double> nonnegative_least_squares(const std::vector<SparseColumn>& columns, const std::vector<double>& b) {
  Vector x(columns.size());
  PassiveSet passive(columns, b.size());
  std::vector<bool> is_out(columns.size());  // no step along them makes the residual smaller
  double largest = 0;
  for (const auto value : b) largest = std::max(largest, std::abs(value));
  const double nothing = 1e-10 * largest;
  while (true) {
    const auto residual = residual_of(columns, b, x, passive.members());
    std::size_t best = columns.size();
    double steepest = nothing;
    for (std::size_t j = 0; j < columns.size(); ++j) {
      if (is_out[j] || x[j] > 0) continue;
      if (const double s = slope(columns[j], residual); s > steepest) steepest = s, best = j;
    }
    if (best == columns.size()) return x;
    is_out[best] = true;
    if (!passive.add(best)) continue;
    if (passive.solve(b).back() <= 0) {  // by rounding: its slope is 0
      passive.keep_if([&](std::size_t i) { return i + 1 < passive.members().size(); });
      continue;
    }
    std::fill(is_out.begin(), is_out.end(), false);
    settle(passive, b, nothing, x);
  }
}

}  // namespace metaformer
