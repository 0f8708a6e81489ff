#include "text/split_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "text/newer_characters.h"

namespace metaformer {

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

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& source) : rest_(pattern), source_(source) {}

  std::string translate() {
    while (!rest_.empty()) {
      if (rest_[0] == '\\')
        add_escape(false);
      else if (rest_[0] == '[')
        add_class();
      else if (rest_.starts_with("(?"))
        add_group();
      else if (rest_[0] == '{')
        add_count();
      else if (rest_[0] == '^' || rest_[0] == '$')
        refuse(1);
      else
        copy(1);
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
      const auto is_hex = [](char digit) {
        return is_digit(digit) || std::string_view("abcdefABCDEF").find(digit) != std::string_view::npos;
      };
      const auto code = rest_.substr(2, 4);
      if (code.size() < 4 || !std::all_of(code.begin(), code.end(), is_hex)) refuse(6);
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
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return is_letter(c) ? static_cast<char>(c | 0x20) : c; });
    for (const auto* pair : {"ss", "st", "ff", "fi", "fl"})
      if (lower.find(pair) != std::string::npos) return true;
    return false;
  }

  // {2}, {2,} and {2,3}; a + or ? behind them means different things.
  void add_count() {
    std::size_t length = 1;
    while (length < rest_.size() && (is_digit(rest_[length]) || rest_[length] == ',')) ++length;
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

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& source) {
  return Translator(pattern, source).translate();
}

}  // namespace metaformer
