// BLEU and its tokenizer, chrF, ROUGE: examples by hand. tests/python/compare_overlap.py compares tokens, counts,
// scores of lines and corpora, and signatures with the published packages, for bytes that are not UTF-8, too.

#include <fmt/format.h>

#include <cmath>

#include "support/catch.h"
#include "text/overlap.h"

namespace metaformer {

namespace {

double bleu_of(std::string_view hypothesis, std::string_view reference) {
  return bleu(bleu_statistics(hypothesis, reference, {})).bleu;
}

double chrf_of(std::string_view hypothesis, std::string_view reference) {
  return chrf(chrf_statistics(hypothesis, reference));
}

RougeScores rouge_of(std::string_view hypothesis, std::string_view reference) {
  return rouge(rouge_statistics(hypothesis, reference));
}

void check(const RougeScore& found, double precision, double recall) {
  CHECK(found.precision == Approx(precision));
  CHECK(found.recall == Approx(recall));
  CHECK(found.f1 == Approx(precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0));
}

}  // namespace

TEST_CASE("marks, numbers, entities, hyphens and white space are cut as by mteval-v13a", "[13a]") {
  const auto [text, tokens] = GENERATE(table<std::string, std::string>({
      {"Hello, (big) world!", "Hello , ( big ) world !"},
      {"1,000.50 and .5 of 3.", "1,000.50 and . 5 of 3 ."},
      {"U.S. e.g", "U . S . e . g"},
      {"well-known 2-fold A-4 don't", "well-known 2 - fold A-4 don't"},
      {"a_b/c\\d~{e}", "a _ b / c \\ d ~ { e }"},
      {"so... 4,,5", "so . . . 4 , , 5"},  // a stop that has been taken for one pair is not looked at for the next
      {"&quot;a&quot; &lt;b&gt; &amp;", "\" a \" < b > &"},
      {"&amp;lt;", "<"},
      {"&amp;quot;", "& quot ;"},
      {"a<skipped>b &apos;", "ab & apos ;"},
      {"hy-\nphen two\nlines", "hyphen two lines"},
      {" a\tb\u00A0c\u2003d\u3000e\u0085f\x1Cg ", "a b c d e f g"},
      {"„Größe“ 東京。 a\u200Bb", "„Größe“ 東京。 a\u200Bb"},
      {"é.à 京,都", "é . à 京 , 都"},
      {"a\xFF.\xC3 \xE2\x80", "a\xFF . \xC3 \xE2\x80"},
      {" \n\u00A0\t ", ""},
  }));
  CHECK(fmt::format("{}", fmt::join(tokenize_13a(text), " ")) == tokens);
}

TEST_CASE("BLEU is the geometric mean of precisions", "[bleu]") {
  const auto statistics = bleu_statistics("the cat sat on the mat", "the cat sat on a mat", {});
  CHECK(statistics.hypothesis == std::array<std::int64_t, 4>{6, 5, 4, 3});
  CHECK(statistics.reference == std::array<std::int64_t, 4>{6, 5, 4, 3});
  CHECK(statistics.matches == std::array<std::int64_t, 4>{5, 3, 2, 1});
  const auto found = bleu(statistics);
  CHECK(found.precisions[0] == Approx(500. / 6));
  CHECK(found.precisions[3] == Approx(100. / 3));
  CHECK(found.brevity_penalty == 1);
  CHECK(found.bleu == Approx(100 * std::pow(1. / 12, 0.25)));
  CHECK(bleu_of("the cat sat on", "the cat sat on the mat") == Approx(100 * std::exp(-0.5)));
}

TEST_CASE("BLEU is 0 without four tokens in any hypothesis, without matches, and of nothing", "[bleu]") {
  for (const auto& [hypothesis, reference] :
       {std::pair{"a b c", "a b c"}, {"a b c d e", "f g h i j"}, {"", "a b c d"}, {"a b c d", ""}, {"", ""}})
    CHECK(bleu_of(hypothesis, reference) == 0);
  CHECK(bleu({}).bleu == 0);
}

TEST_CASE("BLEU without a tokenizer takes words as they are, in lower case by Unicode", "[bleu]") {
  using Tokens = std::vector<std::string>;
  CHECK(bleu_tokens("a, b\u00A0&amp;", {.is_tokenized = true}) == Tokens{"a,", "b", "&amp;"});
  // sacreBLEU removes white space at the end before it tokenizes, so that this hyphen joins nothing.
  CHECK(bleu_tokens("a-\n", {}) == Tokens{"a-"});
  CHECK(bleu_tokens("ÄẞЁ İ ΣΟΦΟΣ Α.Σ.Α Σ A\xC3\xFFÉ", {.lowercase = true, .is_tokenized = true}) ==
        Tokens{"äßё", "i\u0307", "σοφος", "α.σ.α", "σ", "a\xC3\xFFé"});
}

TEST_CASE("chrF weighs recall four times as much as precision, over orders that both sides have", "[chrf]") {
  const auto statistics = chrf_statistics("ab", "abc");
  CHECK(statistics.hypothesis == std::array<std::int64_t, 6>{2, 1, 0, 0, 0, 0});
  CHECK(statistics.reference == std::array<std::int64_t, 6>{3, 2, 1, 0, 0, 0});
  CHECK(statistics.matches == std::array<std::int64_t, 6>{2, 1, 0, 0, 0, 0});
  const double precision = 1, recall = (2. / 3 + 1. / 2) / 2;
  CHECK(chrf(statistics) == Approx(100 * 5 * precision * recall / (4 * precision + recall)));
  CHECK(chrf_statistics("abc", "ab").hypothesis == std::array<std::int64_t, 6>{3, 2, 0, 0, 0, 0});
  for (const auto& [hypothesis, other] : {std::pair{"", ""}, {"a", ""}, {"", "a"}, {" ", "\t"}, {"ü", "ö"}, {"A", "a"}})
    CHECK(chrf_of(hypothesis, other) == 0);
  CHECK(chrf({}) == 0);
}

TEST_CASE("ROUGE counts common words, pairs of words, and the longest common subsequence", "[rouge]") {
  const auto found = rouge_of("the cat was under the bed", "The cat was found under the bed.");
  check(found.rouge_1, 6. / 6, 6. / 7);
  check(found.rouge_2, 4. / 5, 4. / 6);
  check(found.rouge_l, 6. / 6, 6. / 7);
  // The example of Lin (2004).
  check(rouge_of("police kill the gunman", "police killed the gunman").rouge_l, 3. / 4, 3. / 4);
  check(rouge_of("the gunman kill police", "police killed the gunman").rouge_l, 2. / 4, 2. / 4);
  check(rouge_of("the gunman kill police", "police killed the gunman").rouge_2, 1. / 3, 1. / 3);
}

TEST_CASE("ROUGE of nothing is 0, as is ROUGE-2 of one word", "[rouge]") {
  for (const auto& [hypothesis, reference] : {std::pair{"", "a"}, {"a", ""}, {"", ""}, {"a b", "c d"}, {"京", "京"}}) {
    const auto found = rouge_of(hypothesis, reference);
    for (const auto& score : {found.rouge_1, found.rouge_2, found.rouge_l}) check(score, 0, 0);
  }
  check(rouge_of("a", "a").rouge_1, 1, 1);
  check(rouge_of("a", "a").rouge_2, 0, 0);
  check(rouge({}).rouge_l, 0, 0);
}

}  // namespace metaformer
