// BLEU, chrF and ROUGE against values by hand, and of empty texts. tests/python/compare_overlap.py compares tokens,
// counts, scores of lines and corpora, and signatures with the published packages, also for odd characters and bytes
// that are not UTF-8.

#include <cmath>

#include "support/catch.h"
#include "text/overlap.h"

namespace metaformer::test_overlap {

namespace {

double bleu_of(std::string_view hypothesis, std::string_view reference) {
  return bleu(bleu_statistics(hypothesis, reference, {})).bleu;
}

void check(const RougeScore& found, double precision, double recall) {
  CHECK(found.precision == Approx(precision));
  CHECK(found.recall == Approx(recall));
  CHECK(found.f1 == Approx(precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0));
}

}  // namespace

TEST_CASE("BLEU is the geometric mean of precisions", "[bleu]") {
  // Matching sequences of 1 to 4 words: 5 of 6, 3 of 5, 2 of 4, 1 of 3.
  CHECK(bleu_of("the cat sat on the mat", "the cat sat on a mat") == Approx(100 * std::pow(1. / 12, 0.25)));
  CHECK(bleu_of("the cat sat on", "the cat sat on the mat") == Approx(100 * std::exp(-0.5)));
}

TEST_CASE("chrF weighs recall four times as much as precision, over n-gram orders that both texts have", "[chrf]") {
  const double precision = 1, recall = (2. / 3 + 1. / 2) / 2;
  CHECK(chrf(chrf_statistics("ab", "abc")) == Approx(100 * 5 * precision * recall / (4 * precision + recall)));
}

TEST_CASE("ROUGE counts common words, pairs of words, and the longest common subsequence", "[rouge]") {
  // The example of Lin (2004).
  check(rouge(rouge_statistics("police kill the gunman", "police killed the gunman")).rouge_l, 3. / 4, 3. / 4);
  const auto found = rouge(rouge_statistics("the gunman kill police", "police killed the gunman"));
  check(found.rouge_1, 3. / 4, 3. / 4);
  check(found.rouge_2, 1. / 3, 1. / 3);
  check(found.rouge_l, 2. / 4, 2. / 4);
}

TEST_CASE("scores of empty texts and of texts without anything in common are 0", "[bleu][chrf][rouge]") {
  for (const auto& [hypothesis, reference] : {std::pair{"", "a"}, {"a", ""}, {"", ""}, {" ", "\t"}, {"a b", "c d"}}) {
    CHECK(bleu_of(hypothesis, reference) == 0);
    CHECK(chrf(chrf_statistics(hypothesis, reference)) == 0);
    const auto found = rouge(rouge_statistics(hypothesis, reference));
    for (const auto& score : {found.rouge_1, found.rouge_2, found.rouge_l}) check(score, 0, 0);
  }
  CHECK(bleu_of("a b c", "a b c") == 0);                     // too short for four words
  check(rouge(rouge_statistics("a", "a")).rouge_2, 0, 0);    // too short for two words
  check(rouge(rouge_statistics("京", "京")).rouge_1, 0, 0);  // only ASCII letters and digits make words
  CHECK(bleu({}).bleu == 0);
  CHECK(chrf({}) == 0);
  check(rouge({}).rouge_l, 0, 0);
}

}  // namespace metaformer::test_overlap
