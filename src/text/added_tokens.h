#pragma once
// Tokens that stand for a text of their own, such as <|endoftext|>: they are found in a text before it is cut into
// words.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

class AddedTokens {
 public:
  // `content` is not empty.
  void add(const std::string& content, std::int32_t id);

  // Calls `use_text` with the text between tokens (never empty) and `use_token` with the id of each token, in order. Of
  // tokens that overlap the first one counts, of those that start in one place the longest.
  void split(std::string_view text, const std::function<void(std::string_view)>& use_text,
             const std::function<void(std::int32_t)>& use_token) const;

 private:
  struct Token {
    std::string content;
    std::int32_t id;
  };

  bool begins_one(char byte) const { return !by_first_byte_[static_cast<unsigned char>(byte)].empty(); }
  const Token* find_at(std::string_view text) const;

  std::array<std::vector<Token>, 256> by_first_byte_;  // the longest first
};

}  // namespace metaformer
