#include "text/split_pattern.h"

#include <fmt/format.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <regex>
#include <utility>

#include "base/text.h"

namespace metaformer {

// The letters, marks, numbers, punctuation and symbols that Unicode 15, 15.1 and 16 added, by general category, as the
// inside of a class. Regular expressions of tokenizers are written for a library that knows them, and PCRE2 up to 10.42
// knows Unicode 14. A test compares the classes with those of the package `tokenizers`, for every code point
// (tests/python/compare_tokenizers.py).
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> newer_characters = {
    {{"Ll", R"(\x{1C8A}\x{A7CD}\x{A7DB}\x{10D70}-\x{10D85}\x{1DF25}-\x{1DF2A})"},
     {"Lm", R"(\x{10D4E}\x{10D6F}\x{16D40}-\x{16D42}\x{16D6B}-\x{16D6C}\x{1E030}-\x{1E06D}\x{1E4EB})"},
     {"Lo", R"(\x{105C0}-\x{105F3}\x{10D4A}-\x{10D4D}\x{10D4F}\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240})"
            R"(\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7}\x{113D1}\x{113D3})"
            R"(\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F}\x{13441}-\x{13446})"
            R"(\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D43}-\x{16D6A}\x{18CFF}\x{1B132}\x{1B155})"
            R"(\x{1E4D0}-\x{1E4EA}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
     {"Lu", R"(\x{1C89}\x{A7CB}-\x{A7CC}\x{A7DA}\x{A7DC}\x{10D50}-\x{10D65})"},
     {"Mc", R"(\x{CF3}\x{113B8}-\x{113BA}\x{113C2}\x{113C5}\x{113C7}-\x{113CA}\x{113CC}-\x{113CD}\x{113CF}\x{11F03})"
            R"(\x{11F34}-\x{11F35}\x{11F3E}-\x{11F3F}\x{11F41}\x{1612A}-\x{1612C})"},
     {"Mn", R"(\x{897}\x{ECE}\x{10D69}-\x{10D6D}\x{10EFC}-\x{10EFF}\x{11241}\x{113BB}-\x{113C0}\x{113CE}\x{113D0})"
            R"(\x{113D2}\x{113E1}-\x{113E2}\x{11F00}-\x{11F01}\x{11F36}-\x{11F3A}\x{11F40}\x{11F42}\x{11F5A})"
            R"(\x{13440}\x{13447}-\x{13455}\x{1611E}-\x{16129}\x{1612D}-\x{1612F}\x{1E08F}\x{1E4EC}-\x{1E4EF})"
            R"(\x{1E5EE}-\x{1E5EF})"},
     {"Nd", R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
            R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})"},
     {"No", R"(\x{1D2C0}-\x{1D2D3})"},
     {"Pd", R"(\x{10D6E})"},
     {"Po", R"(\x{1B4E}-\x{1B4F}\x{1B7F}\x{113D4}-\x{113D5}\x{113D7}-\x{113D8}\x{11B00}-\x{11B09}\x{11BE1})"
            R"(\x{11F43}-\x{11F4F}\x{16D6D}-\x{16D6F}\x{1E5FF})"},
     {"Sm", R"(\x{10D8E}-\x{10D8F})"},
     {"So", R"(\x{2427}-\x{2429}\x{2FFC}-\x{2FFF}\x{31E4}-\x{31E5}\x{31EF}\x{1CC00}-\x{1CCEF}\x{1CD00}-\x{1CEB3})"
            R"(\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9}\x{1F8B2}-\x{1F8BB}\x{1F8C0}-\x{1F8C1})"
            R"(\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA89}\x{1FA8F}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABF}\x{1FAC6})"
            R"(\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADC}\x{1FADF}\x{1FAE8}-\x{1FAE9}\x{1FAF7}-\x{1FAF8})"
            R"(\x{1FBCB}-\x{1FBEF})"}}};

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// General categories, and their first letters, on which both libraries agree except for newer characters.
constexpr std::array<std::string_view, 25> categories = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "N",  "Nd",
                                                         "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
                                                         "Po", "S",  "Sm", "Sc", "Sk", "So", "Z"};

// The inside of a class: the category, and the newer characters of it.
std::string class_of(std::string_view category) {
  auto text = fmt::format("\\p{{{}}}", category);
  for (const auto& [name, characters] : newer_characters)
    if (name.starts_with(category)) text += characters;
  return text;
}

// Translates a regular expression of a tokenizer file, which is written for Oniguruma in Ruby's syntax, to the same
// expression for PCRE2 with UTF and UCP. A part whose meaning differs between the two libraries, or depends on their
// version of Unicode, is rewritten if possible, or else refused. Errors (exit code 3) name `source` and this part.
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
    fail_data("{}: {} in a regular expression is not supported", source_, in_quotes(rest_.substr(0, length)));
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
    if (c == 's' || c == 'S') {  // \s of PCRE2 also matches U+180E
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
      if (rest_.empty()) fail_data("{}: a [ in a regular expression has no ]", source_);
      if (rest_[0] == '[' || rest_.starts_with("&&")) refuse(2);
      rest_[0] == '\\' ? add_escape(true) : copy(1);
    }
    copy(1);
  }

  void add_group() {
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"})
      if (rest_.starts_with(known)) return copy(known.size());
    if (!rest_.starts_with("(?i:")) refuse(3);
    // Only letters, and no pairs that equal a single character if case does not matter, such as "ss", which equals
    // U+00DF: for such pairs the libraries differ.
    static const std::regex folded_pairs("ss|st|ff|fi|fl", std::regex::icase);
    const auto end = rest_.find(')');
    const auto words = rest_.substr(4, end == std::string_view::npos ? end : end - 4);
    const bool plain =
        std::all_of(words.begin(), words.end(), [](char c) { return is_letter(c) || c == '\'' || c == '|'; });
    if (end == std::string_view::npos || !plain || std::regex_search(words.begin(), words.end(), folded_pairs))
      refuse(end);
    copy(end + 1);
  }

  // {2}, {2,} and {2,3}. A + or ? behind them is refused, because its meaning differs between the libraries.
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

SplitPattern::SplitPattern(std::string_view pattern, const std::string& source) : source_(source) {
  const auto translated = Translator(pattern, source).translate();
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(as_units(translated), translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset,
                            /*context=*/nullptr),
              pcre2_code_free);
  if (code_ == nullptr) fail_data("{}: not a regular expression: {}", source, message_of(error));
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0) fail_data("{}: a regular expression that matches the empty text is not supported", source);
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
    if (found < 0) fail_data("{}: cannot be matched: {}", source_, message_of(found));
    if (place[0] > at) use(text.substr(at, place[0] - at));
    use(text.substr(place[0], place[1] - place[0]));
    at = place[1];
  }
}

}  // namespace metaformer
