#pragma once
// The bilinear forms that the heads of a mixer score with, and whether such a form is a metric: by its eigenvalues, and
// on given vectors.

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "attention/mixer.h"
#include "config/schema.h"
#include "ops/pass.h"

namespace metaformer {

// Letters: n heads; i and j the vectors that the form maps (the k features of a projection, or d of the input); r
// eigenvalues. All float64 on the CPU.
struct HeadForms {
  // As scores use it, without 1/sqrt(k): M of metric, W or U of quadratic attention, unpacked from the checkpoint, with
  // its fixed norm and its temperature. Undefined for scaled dot product, which has none.
  torch::Tensor form_nij;
  // Between inputs of the mixer, with 1/sqrt(k): W_q^T W_k / sqrt(k), P^T M P / sqrt(k), ... (rows of W are outputs, as
  // in the checkpoint; papers that write x W_q call it W_q W_k^T). Of a distance: of the part of the score that depends
  // on both tokens. Undefined where scores are no single form of the input (qk_norm, as_published), and where the forms
  // of the heads would hold more than `most_input_form_numbers`.
  torch::Tensor input_form_ndd;
  // Of the symmetric part of form_nij; of scaled dot product, of W_q^T W_k / sqrt(k), without those that are 0 because
  // its rank is at most 2 k. Ascending. Undefined where there is neither.
  torch::Tensor eigenvalue_nr;
  std::vector<double> asymmetry;  // by head, of the same form: |F - F^T| / (2 |F|), Frobenius; 0: symmetric
};

constexpr std::int64_t most_input_form_numbers = std::int64_t{1} << 24;

// `form_nij`: of the mixer's ScoredVectors; undefined: none. `k`: the width of its heads.
HeadForms forms_of(const Mixer& mixer, const torch::Tensor& form_nij, std::int64_t k);

// Whether d(x, y) = sqrt((x - y) F (x - y)) is one, by the eigenvalues of F's symmetric part: all positive; none
// negative; some negative; not known, as of normalised queries and keys.
enum class FormVerdict { metric, pseudometric, no_metric, unknown };
constexpr std::array<std::string_view, 4> enum_names(FormVerdict) {
  return {"metric", "pseudometric", "no_metric", "unknown"};
}

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

// By head, on the batch's first sequence. `eigenvalue_nr`: as in HeadForms; undefined: not known.
std::vector<MetricAxioms> test_axioms(const ScoredVectors& vectors, const torch::Tensor& eigenvalue_nr);

// sign(d^2) sqrt(|d^2|) of every pair of tokens, [n, c, c], with d^2 = (left_c - left_e) F (right_c - right_e) in the
// batch's first sequence: a distance, or where there is none a negative number.
torch::Tensor signed_distances(const ScoredVectors& vectors);

}  // namespace metaformer
