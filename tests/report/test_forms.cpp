// Eigenvalues of forms, and the axioms of a metric on vectors.

#include <cmath>

#include "attention/mixer_support.h"
#include "config/mixer_config.h"
#include "report/inspection.h"
#include "report/statistics.h"

namespace metaformer::test_forms {

namespace {

using torch::Tensor;

constexpr std::int64_t heads = 3, k = 4, width = 12;

HeadForms forms_with(const MixerConfig& options, const Tensor& form_nij = {}) {
  return forms_of(*random_mixer(options, {.width = width, .heads = heads}), form_nij, k);
}

Tensor spectrum(const Tensor& form_nij) { return torch::linalg_eigvalsh((form_nij + form_nij.mT()) / 2); }

ScoredVectors random_vectors(std::int64_t count, const Tensor& form_nij) {
  const auto vectors = torch::randn({1, form_nij.size(0), count, form_nij.size(1)}, torch::kDouble);
  return {.left_bnci = vectors, .right_bnej = vectors, .form_nij = form_nij};
}

// The fraction of violated triples, by the definition.
double violated_triples(const Tensor& squares_cc) {
  const auto count = squares_cc.size(0);
  const auto at = [&](auto a, auto b) { return squares_cc[a][b].template item<double>(); };
  std::int64_t tried = 0, violated = 0;
  for (std::int64_t a = 0; a < count; ++a)
    for (std::int64_t b = 0; b < a; ++b)
      for (std::int64_t c = 0; c < b; ++c) {
        if (at(a, b) < 0 || at(b, c) < 0 || at(a, c) < 0) continue;
        const double ab = std::sqrt(at(a, b)), bc = std::sqrt(at(b, c)), ac = std::sqrt(at(a, c));
        ++tried;
        violated += ab > bc + ac || bc > ab + ac || ac > ab + bc;
      }
  return static_cast<double>(violated) / static_cast<double>(tried);
}

}  // namespace

TEST_CASE("the eigenvalues of scaled dot product's form are the nonzero eigenvalues of the whole matrix", "[inspect]") {
  torch::manual_seed(1);
  const auto forms = forms_with(ScaledDotProductOptions{});
  CHECK_FALSE(forms.form_nij.defined());
  const auto all_nd = spectrum(forms.input_form_ndd);
  for (std::int64_t n = 0; n < heads; ++n) {
    const auto own = all_nd[n].masked_select(all_nd[n].abs() > 1e-9);
    REQUIRE(own.size(0) == 2 * k);
    CHECK(torch::allclose(forms.eigenvalue_nr[n], own, 1e-9, 1e-12));
  }
  // If twice the head width is the width of the model, all eigenvalues are found.
  const auto filling = forms_of(*random_mixer(ScaledDotProductOptions{}, {.width = 6, .heads = 2}), {}, 3);
  CHECK(torch::allclose(filling.eigenvalue_nr, spectrum(filling.input_form_ndd), 1e-9, 1e-12));
}

TEST_CASE("the axioms hold for a positive form, and a singular one is a pseudometric", "[inspect]") {
  torch::manual_seed(3);
  const auto factor = torch::randn({2, k, k}, torch::kDouble);
  auto form_nij = torch::matmul(factor, factor.mT());
  form_nij[1].select(0, 0).zero_();
  form_nij[1].select(1, 0).zero_();
  const auto axioms = test_axioms(random_vectors(20, form_nij), spectrum(form_nij));
  CHECK(axioms[0].verdict == FormVerdict::metric);
  CHECK(axioms[1].verdict == FormVerdict::pseudometric);
  for (const auto& head : axioms) {
    CHECK(head.vectors == 20);
    CHECK(head.negative_eigenvalues + head.asymmetric_pairs + head.negative_pairs + head.violated_triples == 0);
  }
}

TEST_CASE("the violations of an indefinite form equal those by brute force", "[inspect]") {
  torch::manual_seed(4);
  const auto any = torch::randn({2, k, k}, torch::kDouble);
  const auto form_nij = any + any.mT();
  const auto vectors = random_vectors(15, form_nij);
  const auto axioms = test_axioms(vectors, spectrum(form_nij));
  const auto distance_ncc = signed_distances(vectors), squares_ncc = distance_ncc * distance_ncc.abs();
  for (std::int64_t n = 0; n < 2; ++n) {
    const auto& head = axioms[static_cast<std::size_t>(n)];
    CHECK(head.verdict == FormVerdict::no_metric);
    CHECK(head.asymmetric_pairs == 0);
    const auto negative = (squares_ncc[n] < 0).triu(1).sum().item<double>();
    CHECK(head.negative_pairs == Approx(negative / (15 * 14 / 2)));
    CHECK(head.violated_triples == Approx(violated_triples(squares_ncc[n])));
    CHECK(head.violated_triples > 0);
  }
}

TEST_CASE("asymmetry is 0 for a symmetric and 1 for an antisymmetric form, and asymmetric scores differ by direction",
          "[inspect]") {
  const auto any = torch::randn({1, k, k}, torch::kDouble);
  CHECK(forms_with(MetricOptions{}, any + any.mT()).asymmetry[0] < 1e-15);
  CHECK(forms_with(MetricOptions{}, any - any.mT()).asymmetry[0] == Approx(1));
  const auto axioms = test_axioms(random_vectors(10, any), {})[0];
  CHECK(axioms.asymmetric_pairs == 1);
  CHECK(axioms.verdict == FormVerdict::unknown);
}

TEST_CASE("rank correlation does not depend on monotone changes, and gives ties their mean rank", "[inspect]") {
  CHECK(rank_correlation({1, 2, 3, 4}, {1, 10, 11, 100}) == Approx(1));
  CHECK(rank_correlation({1, 2, 3, 4}, {4, 3, 2, 1}) == Approx(-1));
  // Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: Pearson's correlation is 4.5 / sqrt(4.5 * 5).
  CHECK(rank_correlation({1, 2, 2, 3}, {1, 2, 3, 4}) == Approx(4.5 / std::sqrt(4.5 * 5)));
  CHECK(std::isnan(rank_correlation({1, 1, 1}, {1, 2, 3})));
}

}  // namespace metaformer::test_forms
