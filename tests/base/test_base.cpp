// Text for messages, whole numbers, random numbers.

#include <array>
#include <cmath>
#include <sstream>

#include "base/random.h"
#include "base/text.h"
#include "support/catch.h"

namespace metaformer {

TEST_CASE("the nearest word is suggested only if it is similar", "[text]") {
  CHECK(closest_match("learning_rat", {"learning_rate", "steps"}) == "learning_rate");
  CHECK(closest_match("tsep", {"step"}) == "step");
  CHECK(closest_match("zebra", {"learning_rate", "steps"}).empty());
  CHECK(closest_match(std::string(100'000, 'x'), {"steps"}).empty());
  CHECK(closest_match("x", {}).empty());
}

TEST_CASE("values in messages are short, on one line, without control characters", "[text]") {
  CHECK(in_quotes("a\nb\x01") == "'a\\nb\\x01'");
  CHECK(in_quotes(std::string(1000, 'x')).size() == 65);
  CHECK(shell_word("runs/a-1.b") == "runs/a-1.b");
  CHECK(shell_word("it's $HOME") == R"('it'\''s $HOME')");
  CHECK(shell_word("") == "''");
  CHECK(human_duration(3661) == "1h01m");
  CHECK(human_duration(61) == "1m01s");
  CHECK(human_bytes(1536) == "1.5 KiB");
  const std::string unchanged = "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x99\x82";
  for (const auto& [text, expected] :
       {std::pair<std::string, std::string>{"a\x1b[31mb\r\n\tc\x7f", "a\\x1b[31mb\\r\\n\\tc\\u007f"},
        {std::string("\xc2\x9b") + "2J", "\\u009b2J"},          // CSI as one character
        {std::string("\xe2\x80\xae") + "evil", "\\u202eevil"},  // right to left
        {"\xff\x9b ok \xe2\x80", "\\xff\\x9b ok \\xe2\\x80"},
        {unchanged, unchanged}})
    CHECK(escaped(text) == expected);
  CHECK(escaped_lines("a\n\tb\x1b\n") == "a\n\tb\\x1b\n");
  std::string e_acute;
  for (int i = 0; i < 40; ++i) e_acute += "\xc3\xa9";
  CHECK(printable("x" + e_acute) == "x" + e_acute.substr(0, 58) + "...");  // cut between characters
}

TEST_CASE("a long text is cut in its middle, between characters", "[text]") {
  const std::string cafes = "caf\xc3\xa9 caf\xc3\xa9 caf\xc3\xa9";  // 14 characters
  const std::string cut = "\xe2\x80\xa6";
  CHECK(cut_in_middle(cafes, 14) == cafes);
  CHECK(cut_in_middle(cafes, 9) == "caf\xc3\xa9" + cut + "caf\xc3\xa9");
  CHECK(cut_in_middle("abcdef", 4) == "a" + cut + "ef");
  CHECK(cut_in_middle("abcdef", 1) == cut);
  CHECK(cut_in_middle("abcdef", 0) == cut);
  CHECK(cut_in_middle("", 0).empty());
}

TEST_CASE("the width of a text counts columns of a terminal, and a cut text takes at most as many", "[text]") {
  CHECK(display_width("") == 0);
  CHECK(display_width("caf\xc3\xa9") == 4);
  CHECK(display_width("cafe\xcc\x81") == 4);                       // e and a combining accent
  CHECK(display_width("\xe6\x97\xa5\xe6\x9c\xac") == 4);           // two characters of Japanese
  CHECK(display_width("\xef\xbc\xa1 \xf0\x9f\x99\x82") == 5);      // a fullwidth A, an emoji
  CHECK(display_width("\xe0\xb8\x81\xe0\xb8\xb3x\xff\xe2") == 5);  // Thai; bytes that are not UTF-8 take one each
  const std::string cut = "\xe2\x80\xa6", day = "\xe6\x97\xa5", accent = "\xcc\x81";
  CHECK(cut_in_middle(day + day + day, 6) == day + day + day);
  CHECK(cut_in_middle(day + day + day, 5) == day + cut + day);
  CHECK(cut_in_middle(day + day + day, 4) == cut + day);  // half a character does not fit
  CHECK(cut_in_middle("abcde" + accent + "f", 3) == "a" + cut + "f");
  for (const auto& text : {day + "a" + day + "b" + day, "a" + accent + day + accent + "bc" + day + accent})
    for (std::size_t width = 1; width < 10; ++width) {
      const auto kept = cut_in_middle(text, width);
      CHECK(display_width(kept) <= width);
      CHECK_FALSE(kept.find(cut + accent) != kept.npos);
    }
}

TEST_CASE("random numbers are a function of seed, purpose, step and index", "[random]") {
  const Rng rng(1337, RandomPurpose::batches, 5);
  CHECK(rng.bits(7) == Rng(1337, RandomPurpose::batches, 5).bits(7));
  CHECK(rng.bits(7) != Rng(1338, RandomPurpose::batches, 5).bits(7));
  CHECK(rng.bits(7) != Rng(1337, RandomPurpose::dropout, 5).bits(7));
  CHECK(rng.bits(7) != Rng(1337, RandomPurpose::batches, 6).bits(7));
  CHECK(rng.bits(7) != rng.bits(8));
  // Frozen: a change would silently change every experiment.
  CHECK(Rng::mix(0) == 0xe220a8397b1dcdafULL);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8cULL);
}

TEST_CASE("random numbers are uniform", "[random]") {
  // Chi-square with 63 degrees of freedom: mean 63, standard deviation 11.2.
  for (const std::uint64_t seed : {0ULL, 1ULL, 1337ULL}) {
    const Rng rng(seed, RandomPurpose::batches, 3);
    std::array<int, 64> counts{};
    constexpr int draws = 64'000;
    double sum = 0;
    for (int i = 0; i < draws; ++i) {
      ++counts[rng.below(static_cast<std::uint64_t>(i), 64)];
      sum += rng.uniform(static_cast<std::uint64_t>(i));
    }
    double chi_square = 0;
    for (const int count : counts) chi_square += std::pow(count - 1000.0, 2) / 1000.0;
    CHECK(chi_square > 63 - 4 * 11.2);
    CHECK(chi_square < 63 + 4 * 11.2);
    CHECK(sum / draws == Approx(0.5).margin(0.005));
  }
}

TEST_CASE("whole numbers are read with and without an exponent, and other texts are malformed or too large",
          "[numbers]") {
  std::istringstream valid(
      "12 12 +3 3 -4 -4 1e3 1000 +2.5e2 250 1E3 1000 7.0 7 010 10 9223372036854775807 9223372036854775807 "
      "9007199254740992e0 9007199254740992");
  std::int64_t number = 0, value = 0;
  for (std::string text; valid >> text >> number;) {
    CHECK(parse_whole_number(text, value) == WholeNumber::valid);
    CHECK(value == number);
  }
  const auto check_unset = [](const std::string& text, WholeNumber expected) {
    INFO(text);
    std::int64_t unset = 5;
    CHECK(parse_whole_number(text, unset) == expected);
    CHECK(unset == 5);
  };
  for (const auto* text : {"1.5", "1.5e0", "1e-3", "1e-400", "", "+", "+-3", " 3", "3 ", "0x10", "nan", "inf"})
    check_unset(text, WholeNumber::malformed);
  for (const auto* text : {"1e30", "-1e400", "9223372036854775808", "18446744073709551615"})
    check_unset(text, WholeNumber::too_large);
}

}  // namespace metaformer
