#include "support/catch.h"
#include "text/overlap.h"

namespace metaformer {

static RougeScores scores(std::string_view hypothesis, std::string_view reference) {
  return rouge(rouge_statistics(hypothesis, reference));
}

static void check(const RougeScore& found, double precision, double recall) {
  CHECK(found.precision == Approx(precision));
  CHECK(found.recall == Approx(recall));
  CHECK(found.f1 == Approx(precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0));
}

TEST_CASE("ROUGE counts common words, pairs of words, and the longest common subsequence", "[rouge]") {
  const auto found = scores("the cat was under the bed", "The cat was found under the bed.");
  check(found.rouge_1, 6. / 6, 6. / 7);
  check(found.rouge_2, 4. / 5, 4. / 6);
  check(found.rouge_l, 6. / 6, 6. / 7);
}

TEST_CASE("ROUGE-L tells the order of words apart: the example of Lin (2004)", "[rouge]") {
  const std::string reference = "police killed the gunman";
  check(scores("police kill the gunman", reference).rouge_l, 3. / 4, 3. / 4);
  check(scores("the gunman kill police", reference).rouge_l, 2. / 4, 2. / 4);
  check(scores("police kill the gunman", reference).rouge_2, 1. / 3, 1. / 3);
  check(scores("the gunman kill police", reference).rouge_2, 1. / 3, 1. / 3);
}

TEST_CASE("a word counts as often as both sides have it", "[rouge]") {
  check(scores("a a a b", "a a c").rouge_1, 2. / 4, 2. / 3);
  check(scores("a a a b", "a a c").rouge_2, 1. / 3, 1. / 2);
  check(scores("a a a b", "a a c").rouge_l, 2. / 4, 2. / 3);
}

TEST_CASE("words of ROUGE are made of lower-case letters of ASCII and digits", "[rouge]") {
  CHECK(rouge_tokens("It's 3.5 KM_away, Größe 東京!") ==
        std::vector<std::string>{"it", "s", "3", "5", "km", "away", "gr", "e"});
  // Both letters have a lower case with a letter of ASCII.
  CHECK(rouge_tokens("\u0130stanbul 5\u212A") == std::vector<std::string>{"i", "stanbul", "5k"});
  CHECK(rouge_tokens("").empty());
  CHECK(rouge_tokens(" .\n").empty());
  CHECK(rouge_tokens("a\xFFZ\xC4 \xE2\x84") == std::vector<std::string>{"a", "z"});
}

TEST_CASE("ROUGE of nothing is 0, as is ROUGE-2 of one word", "[rouge]") {
  for (const auto& [hypothesis, reference] : {std::pair{"", "a"}, {"a", ""}, {"", ""}, {"a b", "c d"}, {"京", "京"}}) {
    const auto found = scores(hypothesis, reference);
    check(found.rouge_1, 0, 0);
    check(found.rouge_2, 0, 0);
    check(found.rouge_l, 0, 0);
  }
  check(scores("a", "a").rouge_1, 1, 1);
  check(scores("a", "a").rouge_2, 0, 0);
  check(rouge({}).rouge_l, 0, 0);
}

TEST_CASE("ROUGE of a corpus is the mean over its lines", "[rouge]") {
  auto corpus = rouge_statistics("a b c d", "a b c d");
  corpus += rouge_statistics("", "a");
  corpus += rouge_statistics("a x", "a");
  CHECK(corpus.lines == 3);
  const auto found = rouge(corpus);
  CHECK(found.rouge_1.precision == Approx((1 + 0 + 0.5) / 3));
  CHECK(found.rouge_1.recall == Approx((1 + 0 + 1.) / 3));
  CHECK(found.rouge_1.f1 == Approx((1 + 0 + 2. / 3) / 3));
  CHECK(found.rouge_2.f1 == Approx(1. / 3));
}

}  // namespace metaformer
