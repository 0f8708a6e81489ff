#include "support/catch.h"
#include "text/overlap.h"

namespace metaformer {

static double score(std::string_view hypothesis, std::string_view reference) {
  return chrf(chrf_statistics(hypothesis, reference));
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
  CHECK(score("größer", "größer") == Approx(100));
  CHECK(score("ab cd\u00A0ef", "a bc\tdef\u3000") == Approx(100));
  CHECK(chrf_statistics("ü京", "ü京").reference == std::array<std::int64_t, 6>{2, 1, 0, 0, 0, 0});
  CHECK(score("ü", "ö") == 0);  // the same first byte
  CHECK(score("A", "a") == 0);
}

TEST_CASE("an n-gram counts as often as both sides have it", "[chrf]") {
  CHECK(chrf_statistics("aaaa", "aab").matches == std::array<std::int64_t, 6>{2, 1, 0, 0, 0, 0});
}

TEST_CASE("n-grams of a hypothesis do not count where the reference has none of their order", "[chrf]") {
  CHECK(chrf_statistics("abc", "ab").hypothesis == std::array<std::int64_t, 6>{3, 2, 0, 0, 0, 0});
  CHECK(chrf_statistics("abc", "").hypothesis == std::array<std::int64_t, 6>{});
}

TEST_CASE("chrF of nothing is 0", "[chrf]") {
  CHECK(score("", "") == 0);
  CHECK(score("a", "") == 0);
  CHECK(score("", "a") == 0);
  CHECK(score(" ", "\t") == 0);
  CHECK(chrf({}) == 0);
}

TEST_CASE("counts of lines add up", "[chrf]") {
  auto corpus = chrf_statistics("ab", "abc");
  corpus += chrf_statistics("xyz", "xyz");
  CHECK(corpus.hypothesis == std::array<std::int64_t, 6>{5, 3, 1, 0, 0, 0});
  CHECK(corpus.reference == std::array<std::int64_t, 6>{6, 4, 2, 0, 0, 0});
  CHECK(corpus.matches == std::array<std::int64_t, 6>{5, 3, 1, 0, 0, 0});
}

TEST_CASE("each byte that is not UTF-8 is a character", "[chrf]") {
  CHECK(chrf_statistics("\xFF\xE2\x82", "\xE2\x82").hypothesis[0] == 3);
  CHECK(score("\xFF\xE2\x82", "\xFF\xE2\x82") == Approx(100));
  CHECK(score("\xFF", "\xFE") == 0);
}

TEST_CASE("chrF has a signature", "[chrf]") {
  CHECK(chrf_signature() == "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0");
}

}  // namespace metaformer
