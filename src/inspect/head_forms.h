#pragma once
// The bilinear forms that the heads of a mixer score with.

#include <torch/types.h>

#include <vector>

#include "attention/mixer.h"

namespace metaformer {

// Letters: n heads; i and j what the form maps (the k features of a projection, or d of the input); r eigenvalues. All
// float64 on the CPU.
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

// `form_nij`: what the mixer has shown a probe (ScoredVectors); undefined: none. `k`: the width of its heads.
HeadForms forms_of(const Mixer& mixer, const torch::Tensor& form_nij, std::int64_t k);

}  // namespace metaformer
