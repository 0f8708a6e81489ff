#include "report/forms.h"

#include <algorithm>
#include <cmath>

namespace metaformer {

namespace {

constexpr double negligible = 1e-9;

torch::Tensor wide(const torch::Tensor& tensor) { return tensor.detach().to(torch::kCPU, torch::kDouble); }

double asymmetry_of(const torch::Tensor& form_ij) {
  const double norm = form_ij.norm().item<double>();
  return norm > 0 ? (form_ij - form_ij.t()).norm().item<double>() / (2 * norm) : 0;
}

torch::Tensor eigenvalues(const torch::Tensor& form_nij) {
  return torch::linalg_eigvalsh((form_nij + form_nij.mT()) / 2);
}

// Of the symmetric part of left^T right. With C = [left; right] it is C^T J C / 2, where J exchanges both halves, and
// with C^T = Q T it has the eigenvalues of T J T^T / 2, and zeros.
torch::Tensor eigenvalues(const torch::Tensor& left_nrd, const torch::Tensor& right_nrd) {
  const auto both_ndr = torch::cat({left_nrd, right_nrd}, 1).mT();
  const auto exchanged_ndr = torch::cat({right_nrd, left_nrd}, 1).mT();
  if (both_ndr.size(2) >= both_ndr.size(1)) return eigenvalues(torch::matmul(left_nrd.mT(), right_nrd));
  const auto [basis_ndr, triangle_nrr] = torch::linalg_qr(both_ndr, "reduced");
  const auto image_nrr = torch::matmul(basis_ndr.mT(), exchanged_ndr);  // T J
  return eigenvalues(torch::matmul(image_nrr, triangle_nrr.mT()) / 2);
}

// r_nce = left_c F right_e, in float64 on the CPU.
torch::Tensor bilinear_scores(const ScoredVectors& vectors) {
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

}  // namespace

HeadForms forms_of(const Mixer& mixer, const torch::Tensor& form_nij, std::int64_t k) {
  const torch::NoGradGuard no_grad;
  HeadForms forms;
  if (form_nij.defined()) {
    forms.form_nij = wide(form_nij);
    forms.eigenvalue_nr = eigenvalues(forms.form_nij);
    for (const auto& form_ij : forms.form_nij.unbind()) forms.asymmetry.push_back(asymmetry_of(form_ij));
  }
  const auto factors = mixer.score_form();
  if (!factors) return forms;
  const auto left_nrd = wide(factors->left_nrd) / std::sqrt(static_cast<double>(k)),
             right_nrd = wide(factors->right_nrd);
  const bool has_form = forms.form_nij.defined();
  if (!has_form) {
    forms.eigenvalue_nr = eigenvalues(left_nrd, right_nrd);
    for (std::int64_t n = 0; n < left_nrd.size(0); ++n)
      forms.asymmetry.push_back(asymmetry_of(torch::matmul(left_nrd[n].t(), right_nrd[n])));
  }
  if (left_nrd.size(0) * left_nrd.size(2) * left_nrd.size(2) <= most_input_form_numbers)
    forms.input_form_ndd = torch::matmul(left_nrd.mT(), right_nrd);
  return forms;
}

torch::Tensor signed_distances(const ScoredVectors& vectors) {
  const auto square_nce = squares_of(bilinear_scores(vectors));
  return square_nce.sign() * square_nce.abs().sqrt();
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

}  // namespace metaformer
