#pragma once
// Statistics of samples, and of runs that are paired by their seed. All in float64; distributions are Boost.Math's.

#include <cstdint>
#include <optional>
#include <vector>

namespace metaformer {

// Statistics of one sample. The standard deviation has n - 1 in its denominator and is absent for n < 2.
struct Summary {
  std::int64_t count = 0;
  double mean = 0;
  std::optional<double> deviation;
};
Summary summarise(const std::vector<double>& values);

// Student's paired t test (Student 1908): mean of the differences, its two-sided 95% interval
// mean +- t(0.975, n - 1) sd / sqrt(n), and the p value of "the mean is 0". Needs two pairs; fewer have only a mean.
struct PairedDifference {
  std::int64_t pairs = 0;
  double mean = 0;
  std::optional<double> low, high;  // of the 95% interval
  std::optional<double> p;          // absent when all differences are equal and 0
  std::optional<bool> equivalent;   // whether the interval lies inside +-margin; absent without margin or interval
};
PairedDifference paired_difference(const std::vector<double>& differences, std::optional<double> margin = {});

// McNemar's test (McNemar 1947) of two classifiers on the same texts, by the texts that only one of them gets right.
struct McNemarTest {
  std::int64_t seed = 0;
  std::int64_t only_reference = 0, only_this = 0;  // texts that only one classifies correctly
  double p_exact = 1;                              // two-sided binomial test with probability 1/2
  double chi_square = 0, p_chi_square = 1;         // with Edwards' correction: (|b - c| - 1)^2 / (b + c)
};
McNemarTest mcnemar(std::int64_t seed, std::int64_t only_reference, std::int64_t only_this);

// Spearman's rank correlation of two lists of one length, ties by their mean rank; NaN if one is constant.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace metaformer
