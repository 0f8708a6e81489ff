#pragma once
// Whether the form of a head is a metric: by its eigenvalues, and on given vectors.

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "config/schema.h"
#include "ops/pass.h"

namespace metaformer {

// Whether d(x, y) = sqrt((x - y) F (x - y)) is one, by the eigenvalues of F's symmetric part: all positive; none
// negative; some negative; not known, as of normalised queries and keys.
enum class FormVerdict { metric, pseudometric, no_metric, unknown };
template <>
struct EnumNames<FormVerdict> {
  static constexpr std::array<std::string_view, 4> values = {"metric", "pseudometric", "no_metric", "unknown"};
};

// Of one head. Scores and squares count as 0 below 1e-9 of the largest.
struct MetricAxioms {
  FormVerdict verdict = FormVerdict::unknown;
  double negative_eigenvalues = 0;  // fraction
  std::int64_t vectors = 0;         // that were looked at: the first `most_vectors`
  double asymmetric_pairs = 0;      // fraction of pairs with scores p_c F p_e and p_e F p_c that differ
  double negative_pairs = 0;        // fraction of pairs with d^2 < 0, which have no distance
  double incomplete_triples = 0;    // fraction of triples with such a pair
  double violated_triples = 0;      // fraction of the others in which one side is longer than both others together
};

constexpr std::int64_t most_vectors = 128;

// d^2 of every pair of tokens, [n, c, c]: (left_c - left_e) F (right_c - right_e), of the batch's first sequence.
torch::Tensor squared_distances(const ScoredVectors& vectors);

// sign(d^2) sqrt(|d^2|): a distance, or where there is none a negative number.
torch::Tensor signed_distances(const torch::Tensor& squared_ncc);

// By head, on the batch's first sequence. `eigenvalue_nr`: as in HeadForms; undefined: not known.
std::vector<MetricAxioms> test_axioms(const ScoredVectors& vectors, const torch::Tensor& eigenvalue_nr);

// Spearman's rank correlation of two lists of one length, ties by their mean rank; NaN where one is constant.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace metaformer
