#include "overlap/tokenize_13a.h"

#include "overlap/python_text.h"

namespace metaformer {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }

// ASCII marks but the apostrophe, and the comma, hyphen and full stop, which depend on what is beside them.
bool is_mark(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::string separate_marks(std::string_view text) {
  std::string separated;
  for (const char c : text) {
    if (is_mark(c)) {
      separated += {' ', c, ' '};
    } else {
      separated += c;
    }
  }
  return separated;
}

// Writes `before`, a space between both, and `after` around each two bytes for which `is_pair` holds. As with a
// regular expression, a byte belongs to one pair at most. Bytes will do, because all that is looked for is ASCII.
template <class IsPair>
std::string separate_pairs(std::string_view text, IsPair is_pair, std::string_view before, std::string_view after) {
  std::string separated;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !is_pair(text[i], text[i + 1])) {
      separated += text[i];
      continue;
    }
    separated += before;
    separated += {text[i], ' ', text[i + 1]};
    separated += after;
    ++i;
  }
  return separated;
}

}  // namespace

std::vector<std::string> tokenize_13a(std::string_view line) {
  std::string text(line);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  text = separate_marks(" " + text + " ");
  text = separate_pairs(
      text, [](char c, char next) { return !is_digit(c) && is_stop(next); }, "", " ");
  text = separate_pairs(
      text, [](char c, char next) { return is_stop(c) && !is_digit(next); }, " ", "");
  text = separate_pairs(
      text, [](char c, char next) { return is_digit(c) && next == '-'; }, "", " ");
  return split_words(text);
}

}  // namespace metaformer
