// Counts of characters and the scripts of letters.

#include "support/catch.h"
#include "support/failure.h"
#include "text/character_statistics.h"

namespace metaformer::test_character_statistics {

namespace {

CharacterStatistics statistics_of(const std::string& text) {
  CharacterStatistics statistics;
  statistics.add(text);
  return statistics;
}

using Scripts = std::vector<std::pair<std::string, double>>;

}  // namespace

TEST_CASE("characters are counted by code point, and letters by script", "[characters]") {
  const auto statistics = statistics_of("aab, \u0436\u0436 \u81EA 1\n");
  CHECK(statistics.characters() == 12);
  CHECK(statistics.distinct() == 8);
  CHECK(statistics.scripts() == Scripts{{"Latin", 0.5}, {"Cyrillic", 1 / 3.0}, {"Han", 1 / 6.0}});
  CHECK(statistics.fraction_without_spaces() == 1 / 6.0);
}

TEST_CASE("marks, digits and symbols belong to no script", "[characters]") {
  const auto statistics = statistics_of("12 +\u0301\U0001F600");
  CHECK(statistics.characters() == 6);
  CHECK(statistics.scripts().empty());
  CHECK(statistics.fraction_without_spaces() == 0);
}

TEST_CASE("the pieces of a text have the counts of the whole", "[characters]") {
  const std::string text = "Stra\u00DFe \u0391\u03B1 \u3042\u30AB\u0E01 x";
  auto pieces = statistics_of(text);
  pieces.add(text);
  const auto whole = statistics_of(text + text);
  CHECK(pieces.characters() == whole.characters());
  CHECK(pieces.distinct() == whole.distinct());
  CHECK(pieces.scripts() == whole.scripts());
  CHECK(pieces.fraction_without_spaces() == whole.fraction_without_spaces());
}

TEST_CASE("bytes that are not UTF-8 are an error", "[characters]") {
  CHECK_THAT(message_of(ExitCode::data, [] { statistics_of("a\xff"); }), Mentions("0xff at offset 1"));
}

}  // namespace metaformer::test_character_statistics
