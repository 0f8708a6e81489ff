#include "report/metric_axioms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace metaformer {

namespace {

constexpr double negligible = 1e-9;

// r_nce = left_c F right_e, in float64 on the CPU.
torch::Tensor bilinear_scores(const ScoredVectors& vectors) {
  const auto wide = [](const torch::Tensor& tensor) { return tensor.detach().to(torch::kCPU, torch::kDouble); };
  auto left_nci = wide(vectors.left_bnci[0]);
  if (vectors.form_nij.defined()) left_nci = torch::matmul(left_nci, wide(vectors.form_nij));
  return torch::matmul(left_nci, wide(vectors.right_bnej[0]).mT());
}

torch::Tensor squares_of(const torch::Tensor& score_nce) {
  const auto own_nc = score_nce.diagonal(0, 1, 2);
  return own_nc.unsqueeze(2) + own_nc.unsqueeze(1) - score_nce - score_nce.mT();
}

double fraction(std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

double largest(const torch::Tensor& values) { return values.numel() == 0 ? 0 : values.abs().max().item<double>(); }

void judge(MetricAxioms& axioms, const torch::Tensor& eigenvalue_r) {
  const double bound = negligible * largest(eigenvalue_r);
  const auto negative = (eigenvalue_r < -bound).sum().item<std::int64_t>();
  axioms.negative_eigenvalues = fraction(negative, eigenvalue_r.numel());
  const bool positive = (eigenvalue_r > bound).all().item<bool>();
  axioms.verdict = negative > 0 ? FormVerdict::no_metric : positive ? FormVerdict::metric : FormVerdict::pseudometric;
}

// `square_cc`: contiguous.
void test_triples(MetricAxioms& axioms, const torch::Tensor& square_cc, double bound) {
  const auto count = square_cc.size(0);
  const auto distance_cc = square_cc.clamp_min(0).sqrt().contiguous();
  const auto* square = square_cc.const_data_ptr<double>();
  const auto* distance = distance_cc.const_data_ptr<double>();
  const double slack = negligible * largest(distance_cc);
  std::int64_t incomplete = 0, violated = 0, all = 0;
  for (std::int64_t a = 0; a < count; ++a)
    for (std::int64_t b = a + 1; b < count; ++b)
      for (std::int64_t c = b + 1; c < count; ++c) {
        const std::array pairs = {a * count + b, a * count + c, b * count + c};
        ++all;
        if (std::any_of(pairs.begin(), pairs.end(), [&](auto pair) { return square[pair] < -bound; })) {
          ++incomplete;
          continue;
        }
        const double x = distance[pairs[0]], y = distance[pairs[1]], z = distance[pairs[2]];
        violated += 2 * std::max({x, y, z}) > x + y + z + slack;
      }
  axioms.incomplete_triples = fraction(incomplete, all);
  axioms.violated_triples = fraction(violated, all - incomplete);
}

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

torch::Tensor squared_distances(const ScoredVectors& vectors) { return squares_of(bilinear_scores(vectors)); }

torch::Tensor signed_distances(const torch::Tensor& squared_ncc) {
  return squared_ncc.sign() * squared_ncc.abs().sqrt();
}

std::vector<MetricAxioms> test_axioms(const ScoredVectors& vectors, const torch::Tensor& eigenvalue_nr) {
  const auto count = std::min(most_vectors, vectors.left_bnci.size(2));
  const auto score_nce = bilinear_scores({.left_bnci = vectors.left_bnci.narrow(2, 0, count),
                                          .right_bnej = vectors.right_bnej.narrow(2, 0, count),
                                          .form_nij = vectors.form_nij});
  const auto square_ncc = squares_of(score_nce).contiguous();
  const auto pairs = count * (count - 1) / 2;
  std::vector<MetricAxioms> heads;
  for (std::int64_t n = 0; n < score_nce.size(0); ++n) {
    MetricAxioms axioms{.vectors = count};
    if (eigenvalue_nr.defined()) judge(axioms, eigenvalue_nr[n]);
    const auto score_ce = score_nce[n], square_cc = square_ncc[n];
    const auto differ = (score_ce - score_ce.mT()).abs() > negligible * largest(score_ce);
    axioms.asymmetric_pairs = fraction(differ.triu(1).sum().item<std::int64_t>(), pairs);
    const double bound = negligible * largest(square_cc);
    axioms.negative_pairs = fraction((square_cc < -bound).triu(1).sum().item<std::int64_t>(), pairs);
    test_triples(axioms, square_cc, bound);
    heads.push_back(axioms);
  }
  return heads;
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
