#include "text/python_text.h"

#include <utf8.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>

namespace metaformer {

// The capital letters of Unicode 17 beyond ASCII, without U+0130, whose lower case is two characters. A test compares
// every letter that Python knows with str.lower (tests/python/compare_overlap.py).

// Every `step`-th code point from first to last is a capital; its lower case lies `offset` further.
struct LowerCaseRange {
  std::int32_t first, last, offset, step;
};

constexpr std::array<LowerCaseRange, 184> lower_case_ranges = {
    {{0xC0, 0xD6, 32, 1},         {0xD8, 0xDE, 32, 1},         {0x100, 0x12E, 1, 2},        {0x132, 0x136, 1, 2},
     {0x139, 0x147, 1, 2},        {0x14A, 0x176, 1, 2},        {0x178, 0x178, -121, 1},     {0x179, 0x17D, 1, 2},
     {0x181, 0x181, 210, 1},      {0x182, 0x184, 1, 2},        {0x186, 0x186, 206, 1},      {0x187, 0x187, 1, 1},
     {0x189, 0x18A, 205, 1},      {0x18B, 0x18B, 1, 1},        {0x18E, 0x18E, 79, 1},       {0x18F, 0x18F, 202, 1},
     {0x190, 0x190, 203, 1},      {0x191, 0x191, 1, 1},        {0x193, 0x193, 205, 1},      {0x194, 0x194, 207, 1},
     {0x196, 0x196, 211, 1},      {0x197, 0x197, 209, 1},      {0x198, 0x198, 1, 1},        {0x19C, 0x19C, 211, 1},
     {0x19D, 0x19D, 213, 1},      {0x19F, 0x19F, 214, 1},      {0x1A0, 0x1A4, 1, 2},        {0x1A6, 0x1A6, 218, 1},
     {0x1A7, 0x1A7, 1, 1},        {0x1A9, 0x1A9, 218, 1},      {0x1AC, 0x1AC, 1, 1},        {0x1AE, 0x1AE, 218, 1},
     {0x1AF, 0x1AF, 1, 1},        {0x1B1, 0x1B2, 217, 1},      {0x1B3, 0x1B5, 1, 2},        {0x1B7, 0x1B7, 219, 1},
     {0x1B8, 0x1B8, 1, 1},        {0x1BC, 0x1BC, 1, 1},        {0x1C4, 0x1C4, 2, 1},        {0x1C5, 0x1C5, 1, 1},
     {0x1C7, 0x1C7, 2, 1},        {0x1C8, 0x1C8, 1, 1},        {0x1CA, 0x1CA, 2, 1},        {0x1CB, 0x1DB, 1, 2},
     {0x1DE, 0x1EE, 1, 2},        {0x1F1, 0x1F1, 2, 1},        {0x1F2, 0x1F4, 1, 2},        {0x1F6, 0x1F6, -97, 1},
     {0x1F7, 0x1F7, -56, 1},      {0x1F8, 0x21E, 1, 2},        {0x220, 0x220, -130, 1},     {0x222, 0x232, 1, 2},
     {0x23A, 0x23A, 10795, 1},    {0x23B, 0x23B, 1, 1},        {0x23D, 0x23D, -163, 1},     {0x23E, 0x23E, 10792, 1},
     {0x241, 0x241, 1, 1},        {0x243, 0x243, -195, 1},     {0x244, 0x244, 69, 1},       {0x245, 0x245, 71, 1},
     {0x246, 0x24E, 1, 2},        {0x370, 0x372, 1, 2},        {0x376, 0x376, 1, 1},        {0x37F, 0x37F, 116, 1},
     {0x386, 0x386, 38, 1},       {0x388, 0x38A, 37, 1},       {0x38C, 0x38C, 64, 1},       {0x38E, 0x38F, 63, 1},
     {0x391, 0x3A1, 32, 1},       {0x3A3, 0x3AB, 32, 1},       {0x3CF, 0x3CF, 8, 1},        {0x3D8, 0x3EE, 1, 2},
     {0x3F4, 0x3F4, -60, 1},      {0x3F7, 0x3F7, 1, 1},        {0x3F9, 0x3F9, -7, 1},       {0x3FA, 0x3FA, 1, 1},
     {0x3FD, 0x3FF, -130, 1},     {0x400, 0x40F, 80, 1},       {0x410, 0x42F, 32, 1},       {0x460, 0x480, 1, 2},
     {0x48A, 0x4BE, 1, 2},        {0x4C0, 0x4C0, 15, 1},       {0x4C1, 0x4CD, 1, 2},        {0x4D0, 0x52E, 1, 2},
     {0x531, 0x556, 48, 1},       {0x10A0, 0x10C5, 7264, 1},   {0x10C7, 0x10C7, 7264, 1},   {0x10CD, 0x10CD, 7264, 1},
     {0x13A0, 0x13EF, 38864, 1},  {0x13F0, 0x13F5, 8, 1},      {0x1C89, 0x1C89, 1, 1},      {0x1C90, 0x1CBA, -3008, 1},
     {0x1CBD, 0x1CBF, -3008, 1},  {0x1E00, 0x1E94, 1, 2},      {0x1E9E, 0x1E9E, -7615, 1},  {0x1EA0, 0x1EFE, 1, 2},
     {0x1F08, 0x1F0F, -8, 1},     {0x1F18, 0x1F1D, -8, 1},     {0x1F28, 0x1F2F, -8, 1},     {0x1F38, 0x1F3F, -8, 1},
     {0x1F48, 0x1F4D, -8, 1},     {0x1F59, 0x1F5F, -8, 2},     {0x1F68, 0x1F6F, -8, 1},     {0x1F88, 0x1F8F, -8, 1},
     {0x1F98, 0x1F9F, -8, 1},     {0x1FA8, 0x1FAF, -8, 1},     {0x1FB8, 0x1FB9, -8, 1},     {0x1FBA, 0x1FBB, -74, 1},
     {0x1FBC, 0x1FBC, -9, 1},     {0x1FC8, 0x1FCB, -86, 1},    {0x1FCC, 0x1FCC, -9, 1},     {0x1FD8, 0x1FD9, -8, 1},
     {0x1FDA, 0x1FDB, -100, 1},   {0x1FE8, 0x1FE9, -8, 1},     {0x1FEA, 0x1FEB, -112, 1},   {0x1FEC, 0x1FEC, -7, 1},
     {0x1FF8, 0x1FF9, -128, 1},   {0x1FFA, 0x1FFB, -126, 1},   {0x1FFC, 0x1FFC, -9, 1},     {0x2126, 0x2126, -7517, 1},
     {0x212A, 0x212A, -8383, 1},  {0x212B, 0x212B, -8262, 1},  {0x2132, 0x2132, 28, 1},     {0x2160, 0x216F, 16, 1},
     {0x2183, 0x2183, 1, 1},      {0x24B6, 0x24CF, 26, 1},     {0x2C00, 0x2C2F, 48, 1},     {0x2C60, 0x2C60, 1, 1},
     {0x2C62, 0x2C62, -10743, 1}, {0x2C63, 0x2C63, -3814, 1},  {0x2C64, 0x2C64, -10727, 1}, {0x2C67, 0x2C6B, 1, 2},
     {0x2C6D, 0x2C6D, -10780, 1}, {0x2C6E, 0x2C6E, -10749, 1}, {0x2C6F, 0x2C6F, -10783, 1}, {0x2C70, 0x2C70, -10782, 1},
     {0x2C72, 0x2C72, 1, 1},      {0x2C75, 0x2C75, 1, 1},      {0x2C7E, 0x2C7F, -10815, 1}, {0x2C80, 0x2CE2, 1, 2},
     {0x2CEB, 0x2CED, 1, 2},      {0x2CF2, 0x2CF2, 1, 1},      {0xA640, 0xA66C, 1, 2},      {0xA680, 0xA69A, 1, 2},
     {0xA722, 0xA72E, 1, 2},      {0xA732, 0xA76E, 1, 2},      {0xA779, 0xA77B, 1, 2},      {0xA77D, 0xA77D, -35332, 1},
     {0xA77E, 0xA786, 1, 2},      {0xA78B, 0xA78B, 1, 1},      {0xA78D, 0xA78D, -42280, 1}, {0xA790, 0xA792, 1, 2},
     {0xA796, 0xA7A8, 1, 2},      {0xA7AA, 0xA7AA, -42308, 1}, {0xA7AB, 0xA7AB, -42319, 1}, {0xA7AC, 0xA7AC, -42315, 1},
     {0xA7AD, 0xA7AD, -42305, 1}, {0xA7AE, 0xA7AE, -42308, 1}, {0xA7B0, 0xA7B0, -42258, 1}, {0xA7B1, 0xA7B1, -42282, 1},
     {0xA7B2, 0xA7B2, -42261, 1}, {0xA7B3, 0xA7B3, 928, 1},    {0xA7B4, 0xA7C2, 1, 2},      {0xA7C4, 0xA7C4, -48, 1},
     {0xA7C5, 0xA7C5, -42307, 1}, {0xA7C6, 0xA7C6, -35384, 1}, {0xA7C7, 0xA7C9, 1, 2},      {0xA7CB, 0xA7CB, -42343, 1},
     {0xA7CC, 0xA7DA, 1, 2},      {0xA7DC, 0xA7DC, -42561, 1}, {0xA7F5, 0xA7F5, 1, 1},      {0xFF21, 0xFF3A, 32, 1},
     {0x10400, 0x10427, 40, 1},   {0x104B0, 0x104D3, 40, 1},   {0x10570, 0x1057A, 39, 1},   {0x1057C, 0x1058A, 39, 1},
     {0x1058C, 0x10592, 39, 1},   {0x10594, 0x10595, 39, 1},   {0x10C80, 0x10CB2, 64, 1},   {0x10D50, 0x10D65, 32, 1},
     {0x118A0, 0x118BF, 32, 1},   {0x16E40, 0x16E5F, 32, 1},   {0x16EA0, 0x16EB8, 27, 1},   {0x1E900, 0x1E921, 34, 1}}};

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
