#pragma once
// The words that sentencepiece splits into pieces. No piece extends beyond a word, because marks of spaces (U+2581)
// occur only at its start. The pieces of a text are therefore those of its words, and can be reused.

#include <algorithm>
#include <string_view>

#include "base/signals.h"
#include "config/tokenizer_options.h"

namespace metaformer {

constexpr std::string_view space_mark = "\u2581";

// ASCII white space that is a separate piece if white space is kept; otherwise it separates words, as a space does.
inline bool is_break(char c) { return c == '\n' || c == '\t' || c == '\r'; }

// Bytes of the word that starts `text`, which is not empty. A break and the mark of a space are words; a space
// belongs to the word after it, and of several spaces all but the last are words.
inline std::size_t word_length(std::string_view text) {
  if (is_break(text[0])) return 1;
  if (text.starts_with(space_mark)) return space_mark.size();
  std::size_t length = 1;
  const auto ends_at = [&](char c) {
    return c == ' ' || is_break(c) || (c == space_mark[0] && text.substr(length).starts_with(space_mark));
  };
  while (length < text.size() && !ends_at(text[length])) ++length;
  return length;
}

// The same where spaces in a row belong to the word after them, as pieces of several spaces need it.
inline std::size_t spaced_word_length(std::string_view text) {
  const auto spaces = std::min(text.find_first_not_of(' '), text.size());
  if (spaces < 2) return word_length(text);
  const auto rest = text.substr(spaces);
  const bool is_followed = !rest.empty() && !is_break(rest[0]) && !rest.starts_with(space_mark);
  return is_followed ? spaces + word_length(rest) : spaces;
}

// Calls `use(word)` in order. If white space is kept, the words are the whole text, otherwise they contain none.
// Throws Interrupted when a signal asks to stop.
template <class Use>
void for_each_word(std::string_view text, Whitespace whitespace, Use use,
                   std::size_t (*length_of)(std::string_view) = word_length) {
  constexpr int words_between_looks = 1 << 16;
  for (int words = 1; !text.empty(); ++words) {
    if (words % words_between_looks == 0) throw_if_stopped();
    auto word = text.substr(0, length_of(text));
    text.remove_prefix(word.size());
    if (whitespace == Whitespace::dropped) {
      if (word[0] == ' ') word.remove_prefix(1);
      if (word.empty() || is_break(word[0]) || word == space_mark) continue;
    }
    use(word);
  }
}

}  // namespace metaformer
