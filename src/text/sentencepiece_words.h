#pragma once
// The words that sentencepiece cuts into pieces, one by one: no piece goes beyond a word, because the mark of a space
// (U+2581) stands at its start only. A text's pieces are therefore its words' pieces, and equal words need one cutting.

#include <string_view>

#include "base/signals.h"
#include "config/tokenizer_options.h"

namespace metaformer {

constexpr std::string_view space_mark = "\u2581";

// White space of ASCII that is a piece of its own where white space is kept; else it separates words, as a space does.
inline bool is_break(char c) { return c == '\n' || c == '\t' || c == '\r'; }

// Bytes of the word that starts `text`, which is not empty. A break and the mark of a space stand alone; a space
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

// Calls `use(word)` in order: the words are the whole text where white space is kept, else they have none in them.
// Throws Interrupted when a signal asks to stop.
template <class Use>
void for_each_word(std::string_view text, Whitespace whitespace, Use use) {
  constexpr int words_between_looks = 1 << 16;
  for (int words = 1; !text.empty(); ++words) {
    if (words % words_between_looks == 0) throw_if_stopped();
    auto word = text.substr(0, word_length(text));
    text.remove_prefix(word.size());
    if (whitespace == Whitespace::dropped) {
      if (word[0] == ' ') word.remove_prefix(1);
      if (word.empty() || is_break(word[0]) || word == space_mark) continue;
    }
    use(word);
  }
}

}  // namespace metaformer
