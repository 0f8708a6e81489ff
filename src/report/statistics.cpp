#include "report/statistics.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <numeric>

namespace metaformer {

namespace {

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] < values[b]; });
  std::vector<double> rank(values.size());
  for (std::size_t first = 0, last = 0; first < order.size(); first = last) {
    while (last < order.size() && values[order[last]] == values[order[first]]) ++last;
    for (auto i = first; i < last; ++i) rank[order[i]] = static_cast<double>(first + last - 1) / 2;
  }
  return rank;
}

}  // namespace

Summary summarise(const std::vector<double>& values) {
  Summary summary{.count = static_cast<std::int64_t>(values.size())};
  if (values.empty()) return summary;
  const auto count = static_cast<double>(values.size());
  summary.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() < 2) return summary;
  double squares = 0;
  for (const double value : values) squares += (value - summary.mean) * (value - summary.mean);
  summary.deviation = std::sqrt(squares / (count - 1));
  return summary;
}

PairedDifference paired_difference(const std::vector<double>& differences, std::optional<double> margin) {
  constexpr double confidence = 0.95;
  const auto summary = summarise(differences);
  PairedDifference result{.pairs = summary.count, .mean = summary.mean};
  if (!summary.deviation) return result;
  const auto count = static_cast<double>(summary.count);
  const boost::math::students_t distribution(count - 1);
  const double error = *summary.deviation / std::sqrt(count);
  const double width = boost::math::quantile(distribution, (1 + confidence) / 2) * error;
  result.low = summary.mean - width;
  result.high = summary.mean + width;
  if (error > 0)
    result.p = 2 * boost::math::cdf(boost::math::complement(distribution, std::abs(summary.mean / error)));
  else if (summary.mean != 0)
    result.p = 0;
  if (margin) result.equivalent = *result.low > -*margin && *result.high < *margin;
  return result;
}

McNemarTest mcnemar(std::int64_t seed, std::int64_t only_reference, std::int64_t only_this) {
  McNemarTest test{.seed = seed, .only_reference = only_reference, .only_this = only_this};
  const auto b = static_cast<double>(only_reference), c = static_cast<double>(only_this), discordant = b + c;
  if (discordant == 0) return test;
  const boost::math::binomial fair(discordant, 0.5);
  test.p_exact = std::min(1.0, 2 * boost::math::cdf(fair, std::min(b, c)));
  const double corrected = std::abs(b - c) - 1;
  test.chi_square = corrected * corrected / discordant;
  test.p_chi_square = boost::math::cdf(boost::math::complement(boost::math::chi_squared(1), test.chi_square));
  return test;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto x = ranks(a), y = ranks(b);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace metaformer
