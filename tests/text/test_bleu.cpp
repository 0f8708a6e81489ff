#include <cmath>

#include "support/catch.h"
#include "text/overlap.h"

namespace metaformer {

static BleuStatistics counts(std::string_view hypothesis, std::string_view reference, const BleuOptions& options = {}) {
  return bleu_statistics(hypothesis, reference, options);
}

static double score(std::string_view hypothesis, std::string_view reference, const BleuOptions& options = {}) {
  return bleu(counts(hypothesis, reference, options)).bleu;
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
}

TEST_CASE("identical lines have a BLEU of 100", "[bleu]") {
  CHECK(score("It is 3.5 km away, he said.", "It is 3.5 km away, he said.") == Approx(100));
}

TEST_CASE("a short hypothesis is penalised, a long one is not", "[bleu]") {
  const auto found = bleu(counts("the cat sat on", "the cat sat on the mat"));
  CHECK(found.brevity_penalty == Approx(std::exp(-0.5)));
  CHECK(found.bleu == Approx(100 * std::exp(-0.5)));
  CHECK(bleu(counts("the cat sat on the mat", "the cat sat on")).brevity_penalty == 1);
}

TEST_CASE("an n-gram counts as often as the reference has it, and precisions of 0 are smoothed", "[bleu]") {
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
  CHECK(score("a b c", "a b c") == 0);
  CHECK(bleu(counts("a b c", "a b c")).precisions == std::array<double, 4>{100, 100, 100, 0});
  CHECK(score("a b c d e", "f g h i j") == 0);
  CHECK(score("", "a b c d") == 0);
  CHECK(bleu(counts("", "a b c d")).brevity_penalty == 0);
  CHECK(score("a b c d", "") == 0);
  CHECK(score("", "") == 0);
  CHECK(bleu({}).bleu == 0);
}

TEST_CASE("counts of lines add up to those of a corpus", "[bleu]") {
  auto corpus = counts("a b c", "a b c");
  corpus += counts("d e f g", "d e f g h");
  CHECK(corpus.hypothesis_length == 7);
  CHECK(corpus.reference_length == 8);
  CHECK(corpus.ngrams == std::array<std::int64_t, 4>{7, 5, 3, 1});
  CHECK(corpus.matches == corpus.ngrams);
  CHECK(bleu(corpus).bleu == Approx(100 * std::exp(1 - 8. / 7)));
}

TEST_CASE("BLEU with options names them in its signature", "[bleu]") {
  CHECK(bleu_signature({}) == "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0");
  CHECK(bleu_signature({.lowercase = true, .is_tokenized = true}) ==
        "nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0");
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
  CHECK(score("DAS IST EIN HAUS", "das ist ein haus") == 0);
  CHECK(score("DAS IST EIN HAUS", "das ist ein haus", {.lowercase = true}) == Approx(100));
}

TEST_CASE("bytes that are not UTF-8 are words that can match", "[bleu]") {
  CHECK(score("\xFF \xC3 \xE2\x82 \x80", "\xFF \xC3 \xE2\x82 \x80") == Approx(100));
  CHECK(score("\xFF a b c", "\xFE d e f") == 0);
}

}  // namespace metaformer
