#include "report/paired_statistics.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

namespace metaformer {

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

}  // namespace metaformer
