// BLEU and its tokenizer, chrF, ROUGE. tests/python/compare_overlap.py compares them with the published packages.

#include <cmath>

#include "support/catch.h"
#include "text/overlap.h"

namespace metaformer {

namespace {

using Tokens = std::vector<std::string>;

BleuStatistics counts(std::string_view hypothesis, std::string_view reference, const BleuOptions& options = {}) {
  return bleu_statistics(hypothesis, reference, options);
}

double bleu_of(std::string_view hypothesis, std::string_view reference, const BleuOptions& options = {}) {
  return bleu(counts(hypothesis, reference, options)).bleu;
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

TEST_CASE("marks are tokens, and numbers, abbreviated words and hyphens are cut as by mteval-v13a", "[13a]") {
  CHECK(tokenize_13a("Hello, (big) world!") == Tokens{"Hello", ",", "(", "big", ")", "world", "!"});
  CHECK(tokenize_13a("1,000.50 and .5 of 3.") == Tokens{"1,000.50", "and", ".", "5", "of", "3", "."});
  CHECK(tokenize_13a("U.S. e.g") == Tokens{"U", ".", "S", ".", "e", ".", "g"});
  CHECK(tokenize_13a("well-known 2-fold A-4 don't") == Tokens{"well-known", "2", "-", "fold", "A-4", "don't"});
  CHECK(tokenize_13a("a_b/c\\d~{e}") == Tokens{"a", "_", "b", "/", "c", "\\", "d", "~", "{", "e", "}"});
  // A stop that has been taken for one pair is not looked at for the next.
  CHECK(tokenize_13a("so... 4,,5") == Tokens{"so", ".", ".", ".", "4", ",", ",", "5"});
}

TEST_CASE("entities are unescaped one after the other", "[13a]") {
  CHECK(tokenize_13a("&quot;a&quot; &lt;b&gt; &amp;") == Tokens{"\"", "a", "\"", "<", "b", ">", "&"});
  CHECK(tokenize_13a("&amp;lt;") == Tokens{"<"});
  CHECK(tokenize_13a("&amp;quot;") == Tokens{"&", "quot", ";"});
  CHECK(tokenize_13a("a<skipped>b &apos;") == Tokens{"ab", "&", "apos", ";"});
}

TEST_CASE("a hyphen at the end of a line joins it with the next", "[13a]") {
  CHECK(tokenize_13a("hy-\nphen two\nlines") == Tokens{"hyphen", "two", "lines"});
  CHECK(tokenize_13a("--\n\nx") == Tokens{"-", "x"});
}

TEST_CASE("all white space of Unicode separates tokens, and other signs of Unicode stay in words", "[13a]") {
  CHECK(tokenize_13a(" a\tb\u00A0c\u2003d\u3000e\u0085f\x1Cg ") == Tokens{"a", "b", "c", "d", "e", "f", "g"});
  CHECK(tokenize_13a("„Größe“ 東京。 a\u200Bb") == Tokens{"„Größe“", "東京。", "a\u200Bb"});
  CHECK(tokenize_13a("é.à 京,都") == Tokens{"é", ".", "à", "京", ",", "都"});
}

TEST_CASE("text without tokens has none, and bytes that are not UTF-8 stay in words", "[13a]") {
  CHECK(tokenize_13a("").empty());
  CHECK(tokenize_13a(" \n\u00A0\t ").empty());
  CHECK(tokenize_13a("a\xFF.\xC3 \xE2\x80") == Tokens{"a\xFF", ".", "\xC3", "\xE2\x80"});
}

TEST_CASE("BLEU is the geometric mean of precisions", "[bleu]") {
  const auto statistics = counts("the cat sat on the mat", "the cat sat on a mat");
  CHECK(statistics.hypothesis_length == 6);
  CHECK(statistics.reference_length == 6);
  CHECK(statistics.ngrams == std::array<std::int64_t, 4>{6, 5, 4, 3});
  CHECK(statistics.matches == std::array<std::int64_t, 4>{5, 3, 2, 1});
  const auto found = bleu(statistics);
  CHECK(found.precisions[0] == Approx(500. / 6));
  CHECK(found.precisions[3] == Approx(100. / 3));
  CHECK(found.brevity_penalty == 1);
  CHECK(found.bleu == Approx(100 * std::pow(1. / 12, 0.25)));
  CHECK(bleu_of("It is 3.5 km away, he said.", "It is 3.5 km away, he said.") == Approx(100));
}

TEST_CASE("BLEU penalises a short hypothesis, not a long one", "[bleu]") {
  const auto found = bleu(counts("the cat sat on", "the cat sat on the mat"));
  CHECK(found.brevity_penalty == Approx(std::exp(-0.5)));
  CHECK(found.bleu == Approx(100 * std::exp(-0.5)));
  CHECK(bleu(counts("the cat sat on the mat", "the cat sat on")).brevity_penalty == 1);
}

TEST_CASE("BLEU counts an n-gram as often as the reference has it, and precisions of 0 are smoothed", "[bleu]") {
  const auto statistics = counts("the the the the", "the cat");
  CHECK(statistics.matches == std::array<std::int64_t, 4>{1, 0, 0, 0});
  const auto found = bleu(statistics);
  CHECK(found.precisions[0] == Approx(100. / 4));
  CHECK(found.precisions[1] == Approx(100. / (2 * 3)));
  CHECK(found.precisions[2] == Approx(100. / (4 * 2)));
  CHECK(found.precisions[3] == Approx(100. / (8 * 1)));
  CHECK(found.bleu == Approx(100 * std::pow(1. / 4 / 6 / 8 / 8, 0.25)));
}

TEST_CASE("BLEU is 0 without four tokens in any hypothesis, without matches, and of nothing", "[bleu]") {
  CHECK(bleu_of("a b c", "a b c") == 0);
  CHECK(bleu(counts("a b c", "a b c")).precisions == std::array<double, 4>{100, 100, 100, 0});
  CHECK(bleu_of("a b c d e", "f g h i j") == 0);
  CHECK(bleu_of("", "a b c d") == 0);
  CHECK(bleu(counts("", "a b c d")).brevity_penalty == 0);
  CHECK(bleu_of("a b c d", "") == 0);
  CHECK(bleu_of("", "") == 0);
  CHECK(bleu({}).bleu == 0);
}

TEST_CASE("counts of BLEU add up to those of a corpus", "[bleu]") {
  auto corpus = counts("a b c", "a b c");
  corpus += counts("d e f g", "d e f g h");
  CHECK(corpus.hypothesis_length == 7);
  CHECK(corpus.reference_length == 8);
  CHECK(corpus.ngrams == std::array<std::int64_t, 4>{7, 5, 3, 1});
  CHECK(corpus.matches == corpus.ngrams);
  CHECK(bleu(corpus).bleu == Approx(100 * std::exp(1 - 8. / 7)));
}

TEST_CASE("BLEU without a tokenizer takes words as they are", "[bleu]") {
  CHECK(bleu_tokens("a, b\u00A0&amp;", {.is_tokenized = true}) == std::vector<std::string>{"a,", "b", "&amp;"});
  // sacreBLEU removes white space at the end before it tokenizes, so that this hyphen joins nothing.
  CHECK(bleu_tokens("a-\n", {}) == std::vector<std::string>{"a-"});
}

TEST_CASE("lower-casing knows the letters of Unicode", "[bleu]") {
  const auto lowered = [](std::string_view text) {
    return bleu_tokens(text, {.lowercase = true, .is_tokenized = true}).at(0);
  };
  CHECK(lowered("Hello") == "hello");
  CHECK(lowered("ÄÖÜẞß") == "äöüßß");
  CHECK(lowered("ЁЖЯ") == "ёжя");
  CHECK(lowered("İ") == "i\u0307");
  CHECK(lowered("ΣΟΦΟΣ") == "σοφος");
  CHECK(lowered("Α.Σ.Α") == "α.σ.α");
  CHECK(lowered("Σ") == "σ");
  CHECK(lowered("A\xC3\xFFÉ\xE2\x82") == "a\xC3\xFFé\xE2\x82");
  CHECK(bleu_of("DAS IST EIN HAUS", "das ist ein haus") == 0);
  CHECK(bleu_of("DAS IST EIN HAUS", "das ist ein haus", {.lowercase = true}) == Approx(100));
}

TEST_CASE("chrF weighs recall four times as much as precision, over orders that both sides have", "[chrf]") {
  const auto statistics = chrf_statistics("ab", "abc");
  CHECK(statistics.hypothesis == std::array<std::int64_t, 6>{2, 1, 0, 0, 0, 0});
  CHECK(statistics.reference == std::array<std::int64_t, 6>{3, 2, 1, 0, 0, 0});
  CHECK(statistics.matches == std::array<std::int64_t, 6>{2, 1, 0, 0, 0, 0});
  const double precision = 1, recall = (2. / 3 + 1. / 2) / 2;
  CHECK(chrf(statistics) == Approx(100 * 5 * precision * recall / (4 * precision + recall)));
}

TEST_CASE("chrF counts code points without white space", "[chrf]") {
  CHECK(chrf_of("größer", "größer") == Approx(100));
  CHECK(chrf_of("ab cd\u00A0ef", "a bc\tdef\u3000") == Approx(100));
  CHECK(chrf_statistics("ü京", "ü京").reference == std::array<std::int64_t, 6>{2, 1, 0, 0, 0, 0});
  CHECK(chrf_of("ü", "ö") == 0);  // the same first byte
  CHECK(chrf_of("A", "a") == 0);
}

TEST_CASE("chrF of nothing is 0", "[chrf]") {
  CHECK(chrf_of("", "") == 0);
  CHECK(chrf_of("a", "") == 0);
  CHECK(chrf_of("", "a") == 0);
  CHECK(chrf_of(" ", "\t") == 0);
  CHECK(chrf({}) == 0);
}

TEST_CASE("counts of chrF add up", "[chrf]") {
  auto corpus = chrf_statistics("ab", "abc");
  corpus += chrf_statistics("xyz", "xyz");
  CHECK(corpus.hypothesis == std::array<std::int64_t, 6>{5, 3, 1, 0, 0, 0});
  CHECK(corpus.reference == std::array<std::int64_t, 6>{6, 4, 2, 0, 0, 0});
  CHECK(corpus.matches == std::array<std::int64_t, 6>{5, 3, 1, 0, 0, 0});
}

TEST_CASE("chrF counts an n-gram as often as both sides have it, and none of an order that the reference lacks",
          "[chrf]") {
  CHECK(chrf_statistics("aaaa", "aab").matches == std::array<std::int64_t, 6>{2, 1, 0, 0, 0, 0});
  CHECK(chrf_statistics("abc", "ab").hypothesis == std::array<std::int64_t, 6>{3, 2, 0, 0, 0, 0});
  CHECK(chrf_statistics("abc", "").hypothesis == std::array<std::int64_t, 6>{});
}

TEST_CASE("ROUGE counts common words, pairs of words, and the longest common subsequence", "[rouge]") {
  const auto found = rouge_of("the cat was under the bed", "The cat was found under the bed.");
  check(found.rouge_1, 6. / 6, 6. / 7);
  check(found.rouge_2, 4. / 5, 4. / 6);
  check(found.rouge_l, 6. / 6, 6. / 7);
}

TEST_CASE("ROUGE-L depends on the order of words: the example of Lin (2004)", "[rouge]") {
  const std::string reference = "police killed the gunman";
  check(rouge_of("police kill the gunman", reference).rouge_l, 3. / 4, 3. / 4);
  check(rouge_of("the gunman kill police", reference).rouge_l, 2. / 4, 2. / 4);
  check(rouge_of("police kill the gunman", reference).rouge_2, 1. / 3, 1. / 3);
  check(rouge_of("the gunman kill police", reference).rouge_2, 1. / 3, 1. / 3);
}

TEST_CASE("ROUGE counts a word as often as both sides have it", "[rouge]") {
  check(rouge_of("a a a b", "a a c").rouge_1, 2. / 4, 2. / 3);
  check(rouge_of("a a a b", "a a c").rouge_2, 1. / 3, 1. / 2);
  check(rouge_of("a a a b", "a a c").rouge_l, 2. / 4, 2. / 3);
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
    const auto found = rouge_of(hypothesis, reference);
    check(found.rouge_1, 0, 0);
    check(found.rouge_2, 0, 0);
    check(found.rouge_l, 0, 0);
  }
  check(rouge_of("a", "a").rouge_1, 1, 1);
  check(rouge_of("a", "a").rouge_2, 0, 0);
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

TEST_CASE("signatures name the options and the version", "[overlap]") {
  CHECK(bleu_signature({}) == "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0");
  CHECK(bleu_signature({.lowercase = true, .is_tokenized = true}) ==
        "nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0");
  CHECK(chrf_signature() == "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0");
}

TEST_CASE("bytes that are not UTF-8 are words or characters that can match", "[overlap]") {
  CHECK(bleu_of("\xFF \xC3 \xE2\x82 \x80", "\xFF \xC3 \xE2\x82 \x80") == Approx(100));
  CHECK(bleu_of("\xFF a b c", "\xFE d e f") == 0);
  CHECK(chrf_statistics("\xFF\xE2\x82", "\xE2\x82").hypothesis[0] == 3);
  CHECK(chrf_of("\xFF\xE2\x82", "\xFF\xE2\x82") == Approx(100));
  CHECK(chrf_of("\xFF", "\xFE") == 0);
}

}  // namespace metaformer
