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

struct AddedToken {
  std::string content;  // not empty
  std::int32_t id = 0;
};

class AddedTokens {
 public:
  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  // Calls `use_text` with the text between tokens (never empty) and `use_token` with the id of each token, in order. Of
  // tokens that overlap the first one counts, of those that start in one place the longest.
  void split(std::string_view text, const std::function<void(std::string_view)>& use_text,
             const std::function<void(std::int32_t)>& use_token) const;

 private:
  bool begins_one(char byte) const { return !by_first_byte_[static_cast<unsigned char>(byte)].empty(); }
  const AddedToken* find_at(std::string_view text) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // the longest first
  bool none_;
};

}  // namespace metaformer
