#pragma once
// Words and punctuation marks as tokens, the most frequent first; id 0 is the unknown token.
//
// A word is a run of letters and digits (Unicode's general categories L and N) with single joiners inside it (the
// apostrophe of don't, straight or curly). Every other character is a separate token, and white space (Unicode's, with
// the spaces without width) separates tokens. A combining mark (category M) or a joining character without width
// belongs to the character before it.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace metaformer {

// Kinds of characters for cutting words; `attached`: to the character before it.
enum class CharacterKind { space, word, mark, attached };
CharacterKind character_kind(char32_t point);

// Converts valid UTF-8 to Unicode's lower case, independent of the language: a sigma at the end of a word becomes a
// final one.
void make_lowercase(std::string& text);

// How a text is split.
struct WordRules {
  bool lowercase = true;
  std::string joiners = WordTokenizerOptions().joiners;
  Whitespace whitespace = Whitespace::dropped;
};

class WordTokenizer : public Tokenizer {
 public:
  // Orders by descending count, then by bytes; drops words rarer than `min_count` or beyond `vocabulary`. If white
  // space is kept, the space comes first, whatever its count.
  static WordTokenizer from_text(const WordTokenizerOptions& options, std::string_view text);

  // `words` get the ids 1, 2, ...: each one token by the rules above, none twice; errors (exit code 3) name `source`.
  WordTokenizer(std::vector<std::string> words, WordRules rules, const std::string& source);

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(words_.size()) + 1; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::optional<std::int32_t> unknown_id() const override { return 0; }

  // Unknown tokens are "<unk>". If white space is kept, this is the inverse of `encode`, except for unknown tokens and
  // folded case. If it is dropped, tokens are joined with single spaces.
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::vector<std::int32_t> token_bytes(std::string_view text) const override;

  // The unknown words, and the case of the others if it is folded; nothing if white space is dropped.
  std::optional<std::vector<std::string>> lost(std::string_view text) const override;

  std::string token_separator() const override { return rules_.whitespace == Whitespace::dropped ? " " : ""; }
  nlohmann::ordered_json to_json() const override;

 private:
  std::int32_t id(const std::string& token) const;

  std::vector<std::string> words_;  // by id - 1
  WordRules rules_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace metaformer
