#include "inspect/head_forms.h"

#include <cmath>

namespace metaformer {

namespace {

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

}  // namespace metaformer
