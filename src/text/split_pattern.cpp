#include "text/split_pattern.h"

#include <fmt/format.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "base/text.h"

namespace metaformer {

// The letters, marks, numbers, punctuation and symbols that Unicode 15, 15.1 and 16 added. Regular expressions of
// tokenizers are written for a library that knows them, and PCRE2 up to 10.42 knows Unicode 14. A test compares the
// classes with those of the package `tokenizers`, for every code point (tests/python/compare_tokenizers.py).
struct CharacterRange {
  std::uint32_t first, last;
  std::string_view category;  // general category: Lu, Nd, ...
};

constexpr std::array<CharacterRange, 125> newer_characters = {
    {{0x897, 0x897, "Mn"},     {0xCF3, 0xCF3, "Mc"},     {0xECE, 0xECE, "Mn"},     {0x1B4E, 0x1B4F, "Po"},
     {0x1B7F, 0x1B7F, "Po"},   {0x1C89, 0x1C89, "Lu"},   {0x1C8A, 0x1C8A, "Ll"},   {0x2427, 0x2429, "So"},
     {0x2FFC, 0x2FFF, "So"},   {0x31E4, 0x31E5, "So"},   {0x31EF, 0x31EF, "So"},   {0xA7CB, 0xA7CC, "Lu"},
     {0xA7CD, 0xA7CD, "Ll"},   {0xA7DA, 0xA7DA, "Lu"},   {0xA7DB, 0xA7DB, "Ll"},   {0xA7DC, 0xA7DC, "Lu"},
     {0x105C0, 0x105F3, "Lo"}, {0x10D40, 0x10D49, "Nd"}, {0x10D4A, 0x10D4D, "Lo"}, {0x10D4E, 0x10D4E, "Lm"},
     {0x10D4F, 0x10D4F, "Lo"}, {0x10D50, 0x10D65, "Lu"}, {0x10D69, 0x10D6D, "Mn"}, {0x10D6E, 0x10D6E, "Pd"},
     {0x10D6F, 0x10D6F, "Lm"}, {0x10D70, 0x10D85, "Ll"}, {0x10D8E, 0x10D8F, "Sm"}, {0x10EC2, 0x10EC4, "Lo"},
     {0x10EFC, 0x10EFF, "Mn"}, {0x1123F, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
     {0x1138B, 0x1138B, "Lo"}, {0x1138E, 0x1138E, "Lo"}, {0x11390, 0x113B5, "Lo"}, {0x113B7, 0x113B7, "Lo"},
     {0x113B8, 0x113BA, "Mc"}, {0x113BB, 0x113C0, "Mn"}, {0x113C2, 0x113C2, "Mc"}, {0x113C5, 0x113C5, "Mc"},
     {0x113C7, 0x113CA, "Mc"}, {0x113CC, 0x113CD, "Mc"}, {0x113CE, 0x113CE, "Mn"}, {0x113CF, 0x113CF, "Mc"},
     {0x113D0, 0x113D0, "Mn"}, {0x113D1, 0x113D1, "Lo"}, {0x113D2, 0x113D2, "Mn"}, {0x113D3, 0x113D3, "Lo"},
     {0x113D4, 0x113D5, "Po"}, {0x113D7, 0x113D8, "Po"}, {0x113E1, 0x113E2, "Mn"}, {0x116D0, 0x116E3, "Nd"},
     {0x11B00, 0x11B09, "Po"}, {0x11BC0, 0x11BE0, "Lo"}, {0x11BE1, 0x11BE1, "Po"}, {0x11BF0, 0x11BF9, "Nd"},
     {0x11F00, 0x11F01, "Mn"}, {0x11F02, 0x11F02, "Lo"}, {0x11F03, 0x11F03, "Mc"}, {0x11F04, 0x11F10, "Lo"},
     {0x11F12, 0x11F33, "Lo"}, {0x11F34, 0x11F35, "Mc"}, {0x11F36, 0x11F3A, "Mn"}, {0x11F3E, 0x11F3F, "Mc"},
     {0x11F40, 0x11F40, "Mn"}, {0x11F41, 0x11F41, "Mc"}, {0x11F42, 0x11F42, "Mn"}, {0x11F43, 0x11F4F, "Po"},
     {0x11F50, 0x11F59, "Nd"}, {0x11F5A, 0x11F5A, "Mn"}, {0x1342F, 0x1342F, "Lo"}, {0x13440, 0x13440, "Mn"},
     {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"}, {0x13460, 0x143FA, "Lo"}, {0x16100, 0x1611D, "Lo"},
     {0x1611E, 0x16129, "Mn"}, {0x1612A, 0x1612C, "Mc"}, {0x1612D, 0x1612F, "Mn"}, {0x16130, 0x16139, "Nd"},
     {0x16D40, 0x16D42, "Lm"}, {0x16D43, 0x16D6A, "Lo"}, {0x16D6B, 0x16D6C, "Lm"}, {0x16D6D, 0x16D6F, "Po"},
     {0x16D70, 0x16D79, "Nd"}, {0x18CFF, 0x18CFF, "Lo"}, {0x1B132, 0x1B132, "Lo"}, {0x1B155, 0x1B155, "Lo"},
     {0x1CC00, 0x1CCEF, "So"}, {0x1CCF0, 0x1CCF9, "Nd"}, {0x1CD00, 0x1CEB3, "So"}, {0x1D2C0, 0x1D2D3, "No"},
     {0x1DF25, 0x1DF2A, "Ll"}, {0x1E030, 0x1E06D, "Lm"}, {0x1E08F, 0x1E08F, "Mn"}, {0x1E4D0, 0x1E4EA, "Lo"},
     {0x1E4EB, 0x1E4EB, "Lm"}, {0x1E4EC, 0x1E4EF, "Mn"}, {0x1E4F0, 0x1E4F9, "Nd"}, {0x1E5D0, 0x1E5ED, "Lo"},
     {0x1E5EE, 0x1E5EF, "Mn"}, {0x1E5F0, 0x1E5F0, "Lo"}, {0x1E5F1, 0x1E5FA, "Nd"}, {0x1E5FF, 0x1E5FF, "Po"},
     {0x1F6DC, 0x1F6DC, "So"}, {0x1F774, 0x1F776, "So"}, {0x1F77B, 0x1F77F, "So"}, {0x1F7D9, 0x1F7D9, "So"},
     {0x1F8B2, 0x1F8BB, "So"}, {0x1F8C0, 0x1F8C1, "So"}, {0x1FA75, 0x1FA77, "So"}, {0x1FA87, 0x1FA89, "So"},
     {0x1FA8F, 0x1FA8F, "So"}, {0x1FAAD, 0x1FAAF, "So"}, {0x1FABB, 0x1FABF, "So"}, {0x1FAC6, 0x1FAC6, "So"},
     {0x1FACE, 0x1FACF, "So"}, {0x1FADA, 0x1FADC, "So"}, {0x1FADF, 0x1FADF, "So"}, {0x1FAE8, 0x1FAE9, "So"},
     {0x1FAF7, 0x1FAF8, "So"}, {0x1FBCB, 0x1FBEF, "So"}, {0x2B739, 0x2B739, "Lo"}, {0x2EBF0, 0x2EE5D, "Lo"},
     {0x31350, 0x323AF, "Lo"}}};

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// General categories, and their first letters, on which both libraries agree but for newer characters.
constexpr std::array<std::string_view, 25> categories = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "N",  "Nd",
                                                         "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
                                                         "Po", "S",  "Sm", "Sc", "Sk", "So", "Z"};

// The inside of a class: the category, and the newer characters of it.
std::string class_of(std::string_view category) {
  auto text = fmt::format("\\p{{{}}}", category);
  for (std::size_t i = 0; i < newer_characters.size(); ++i) {
    const auto belongs = [&](const CharacterRange& range) { return range.category.starts_with(category); };
    if (!belongs(newer_characters[i])) continue;
    const auto first = newer_characters[i].first;
    while (i + 1 < newer_characters.size() && belongs(newer_characters[i + 1]) &&
           newer_characters[i + 1].first == newer_characters[i].last + 1)
      ++i;
    text += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", first, newer_characters[i].last);
  }
  return text;
}

// Regular expressions of tokenizer files are written for Oniguruma, in Ruby's syntax: gives the same expression for
// PCRE2 with UTF and UCP. Errors (exit code 3) name `source` and the part whose meaning differs between the two
// libraries or depends on their version of Unicode: it is refused, unless it can be rewritten.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& source) : rest_(pattern), source_(source) {}

  std::string translate() {
    while (!rest_.empty()) {
      const char c = rest_[0];
      if (c == '^' || c == '$') refuse(1);
      c == '\\'                 ? add_escape(false)
      : c == '['                ? add_class()
      : c == '{'                ? add_count()
      : rest_.starts_with("(?") ? add_group()
                                : copy(1);
    }
    return std::move(text_);
  }

 private:
  [[noreturn]] void refuse(std::size_t length) const {
    throw Error(ExitCode::data, fmt::format("{}: {} in a regular expression is not supported", source_,
                                            in_quotes(rest_.substr(0, length))));
  }

  void copy(std::size_t length) {
    text_ += rest_.substr(0, length);
    rest_.remove_prefix(length);
  }

  // "\p{L}" to "[\p{L}...]", without the brackets inside a class.
  void add_category(std::string_view category, bool negated, bool in_class, std::size_t length) {
    if (std::find(categories.begin(), categories.end(), category) == categories.end() || (negated && in_class))
      refuse(length);
    const auto members = class_of(category);
    text_ += in_class ? members : fmt::format("[{}{}]", negated ? "^" : "", members);
    rest_.remove_prefix(length);
  }

  void add_escape(bool in_class) {
    const char c = rest_.size() > 1 ? rest_[1] : '\0';
    if (c == 'p' || c == 'P') {
      const auto end = rest_.find('}');
      if (end == std::string_view::npos || !rest_.substr(2).starts_with('{')) refuse(2);
      return add_category(rest_.substr(3, end - 3), c == 'P', in_class, end + 1);
    }
    if (c == 'd' || c == 'D') return add_category("Nd", c == 'D', in_class, 2);
    if (c == 's' || c == 'S') {  // PCRE2's has U+180E, too
      text_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      return rest_.remove_prefix(2);
    }
    if (c == 'u') {
      const auto code = rest_.substr(2, 4);
      if (code.size() < 4 || code.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) refuse(6);
      text_ += fmt::format("\\x{{{}}}", code);
      return rest_.remove_prefix(6);
    }
    const bool means_the_same =
        c == 'r' || c == 'n' || c == 't' || c == 'f' || (c > ' ' && c < '\x7F' && !is_letter(c) && !is_digit(c));
    if (!means_the_same) refuse(2);
    copy(2);
  }

  void add_class() {
    copy(rest_.starts_with("[^") ? 2 : 1);
    if (rest_.starts_with(']')) refuse(1);
    while (!rest_.starts_with(']')) {
      if (rest_.empty()) throw Error(ExitCode::data, source_ + ": a [ in a regular expression has no ]");
      if (rest_[0] == '[' || rest_.starts_with("&&")) refuse(2);
      rest_[0] == '\\' ? add_escape(true) : copy(1);
    }
    copy(1);
  }

  void add_group() {
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
      if (rest_.starts_with(known)) return copy(known.size());
    if (!rest_.starts_with("(?i:")) refuse(3);
    // Of letters only, and without pairs that equal a single character if case does not matter: there the libraries
    // differ.
    const auto end = rest_.find(')');
    const auto words = rest_.substr(4, end == std::string_view::npos ? end : end - 4);
    const bool plain =
        std::all_of(words.begin(), words.end(), [](char c) { return is_letter(c) || c == '\'' || c == '|'; });
    if (end == std::string_view::npos || !plain || has_folded_pair(words)) refuse(end);
    copy(end + 1);
  }

  // "ss" equals U+00DF, "fi" U+FB01.
  static bool has_folded_pair(std::string_view words) {
    std::string lower(words);
    for (char& c : lower)
      if (is_letter(c)) c = static_cast<char>(c | 0x20);
    for (const auto* pair : {"ss", "st", "ff", "fi", "fl"})
      if (lower.find(pair) != std::string::npos) return true;
    return false;
  }

  // {2}, {2,} and {2,3}; a + or ? behind them means different things.
  void add_count() {
    const auto length = std::min(rest_.find_first_not_of("0123456789,", 1), rest_.size());
    const auto inside = rest_.substr(1, length - 1);
    const bool is_count = rest_.substr(length).starts_with('}') && !inside.empty() && is_digit(inside[0]) &&
                          std::count(inside.begin(), inside.end(), ',') <= 1;
    const auto after = rest_.substr(length + (is_count ? 1 : 0));
    if (!is_count || after.starts_with('+') || after.starts_with('?')) refuse(length + 2);
    copy(length + 1);
  }

  std::string_view rest_;
  const std::string& source_;
  std::string text_;
};

PCRE2_SPTR as_units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

void SplitPattern::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

SplitPattern::SplitPattern(std::string_view pattern, const std::string& source) : source_(source) {
  const auto translated = Translator(pattern, source).translate();
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(as_units(translated), translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset,
                            /*context=*/nullptr));
  if (code_ == nullptr)
    throw Error(ExitCode::data, fmt::format("{}: not a regular expression: {}", source, message_of(error)));
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0)
    throw Error(ExitCode::data, source + ": a regular expression that matches the empty text is not supported");
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // where it cannot, matching is slower
}

void SplitPattern::split(std::string_view text, const std::function<void(std::string_view)>& use) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(/*pairs=*/1, /*context=*/nullptr), pcre2_match_data_free);
  const auto* place = pcre2_get_ovector_pointer(match.get());
  for (std::size_t at = 0; at < text.size();) {
    const auto find = [&](std::uint32_t options) {
      return pcre2_match(code_.get(), as_units(text), text.size(), at, PCRE2_NO_UTF_CHECK | options, match.get(),
                         nullptr);
    };
    auto found = find(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = find(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return use(text.substr(at));
    if (found < 0) throw Error(ExitCode::data, fmt::format("{}: cannot be matched: {}", source_, message_of(found)));
    if (place[0] > at) use(text.substr(at, place[0] - at));
    use(text.substr(place[0], place[1] - place[0]));
    at = place[1];
  }
}

}  // namespace metaformer
