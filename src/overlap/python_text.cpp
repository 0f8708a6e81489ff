#include "overlap/python_text.h"

#include <utf8.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "overlap/lower_case_ranges.h"

namespace metaformer {

namespace {

constexpr char32_t escaped_byte = 0xDC00;

// Calls `use(code point, its bytes)` in order.
template <class Use>
void for_each_character(std::string_view text, Use use) {
  for (auto at = text.begin(); at != text.end();) {
    const auto bad = utf8::find_invalid(at, text.end());
    while (at != bad) {
      const auto start = at;
      const char32_t point = utf8::unchecked::next(at);
      use(point, std::string_view(start, at));
    }
    if (at == text.end()) break;
    use(escaped_byte + static_cast<unsigned char>(*at), std::string_view(at, at + 1));
    ++at;
  }
}

void append(char32_t point, std::string& text) {
  const bool is_escaped = point >= escaped_byte + 0x80 && point <= escaped_byte + 0xFF;
  if (is_escaped) {
    text += static_cast<char>(point - escaped_byte);
  } else {
    utf8::unchecked::append(point, std::back_inserter(text));
  }
}

bool has_capital(const LowerCaseRange& range, std::int32_t point) {
  return point >= range.first && point <= range.last && (point - range.first) % range.step == 0;
}

char32_t lower(char32_t point) {
  if (point < 0x80) return point >= 'A' && point <= 'Z' ? point + ('a' - 'A') : point;
  const auto number = static_cast<std::int32_t>(point);
  const auto after = std::ranges::upper_bound(lower_case_ranges, number, {}, &LowerCaseRange::first);
  if (after == lower_case_ranges.begin()) return point;
  const auto& range = *std::prev(after);
  return has_capital(range, number) ? static_cast<char32_t>(number + range.offset) : point;
}

// Unicode's Case_Ignorable, as far as it occurs in and beside words of Greek letters: apostrophes, full stops, accents.
bool is_case_ignorable(char32_t point) {
  constexpr std::u32string_view signs = U"'.:^`\u00A8\u00AD\u00AF\u00B4\u00B7\u00B8\u0387\u2018\u2019\u2024\u2027";
  return (point >= 0x2B0 && point <= 0x36F) || (point >= 0x200B && point <= 0x200F) || signs.find(point) != signs.npos;
}

// Unicode's Cased: letters that have both cases, and as far as they occur in and beside words of Greek letters those
// that have one, or another lower case than their capital's.
bool is_cased(char32_t point) {
  constexpr std::u32string_view others = U"\u00AA\u00B5\u00BA\u0130\u0131\u0138\u0149\u017F\u0390\u03B0\u03C2";
  const bool is_phonetic = point >= 0x250 && point <= 0x2AF && point != 0x294;
  if (is_phonetic || others.find(point) != others.npos) return true;
  if (point < 0x80) return (point >= 'A' && point <= 'Z') || (point >= 'a' && point <= 'z');
  const auto number = static_cast<std::int32_t>(point);
  return std::ranges::any_of(lower_case_ranges, [number](const LowerCaseRange& range) {
    return has_capital(range, number) || has_capital(range, number - range.offset);
  });
}

// Whether the capital sigma at `place` ends a word (Unicode's Final_Sigma).
bool is_final_sigma(const std::u32string& points, std::size_t place) {
  auto before = place;
  while (before > 0 && is_case_ignorable(points[before - 1])) --before;
  if (before == 0 || !is_cased(points[before - 1])) return false;
  auto after = place + 1;
  while (after < points.size() && is_case_ignorable(points[after])) ++after;
  return after == points.size() || !is_cased(points[after]);
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for_each_character(text, [&](char32_t point, std::string_view) { points += point; });
  return points;
}

bool is_white_space(char32_t point) {
  return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20) || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool is_within_word = false;
  for_each_character(text, [&](char32_t point, std::string_view bytes) {
    const bool was_within_word = std::exchange(is_within_word, !is_white_space(point));
    if (!is_within_word) return;
    if (!was_within_word) words.emplace_back();
    words.back() += bytes;
  });
  return words;
}

std::string_view without_trailing_space(std::string_view text) {
  const char* end = text.data();
  for_each_character(text, [&](char32_t point, std::string_view bytes) {
    if (!is_white_space(point)) end = bytes.data() + bytes.size();
  });
  return text.substr(0, static_cast<std::size_t>(end - text.data()));
}

std::string lower_case(std::string_view text) {
  constexpr char32_t capital_sigma = 0x3A3, final_sigma = 0x3C2, capital_dotted_i = 0x130;
  const auto points = code_points(text);
  std::string lowered;
  lowered.reserve(text.size());
  for (std::size_t place = 0; place < points.size(); ++place) {
    const auto point = points[place];
    if (point == capital_dotted_i) {
      lowered += "i\u0307";
    } else if (point == capital_sigma && is_final_sigma(points, place)) {
      append(final_sigma, lowered);
    } else {
      append(lower(point), lowered);
    }
  }
  return lowered;
}

}  // namespace metaformer
