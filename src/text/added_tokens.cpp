#include "text/added_tokens.h"

#include <algorithm>

namespace metaformer {

void AddedTokens::add(const std::string& content, std::int32_t id) {
  auto& alike = by_first_byte_[static_cast<unsigned char>(content.front())];
  const auto is_shorter = [&](const Token& token) { return token.content.size() < content.size(); };
  alike.insert(std::find_if(alike.begin(), alike.end(), is_shorter), {content, id});
}

const AddedTokens::Token* AddedTokens::find_at(std::string_view text) const {
  for (const auto& token : by_first_byte_[static_cast<unsigned char>(text.front())])
    if (text.starts_with(token.content)) return &token;
  return nullptr;
}

void AddedTokens::split(std::string_view text, const std::function<void(std::string_view)>& use_text,
                        const std::function<void(std::int32_t)>& use_token) const {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto* token = begins_one(text[at]) ? find_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    if (at > begin) use_text(text.substr(begin, at - begin));
    use_token(token->id);
    begin = at += token->content.size();
  }
  if (begin < text.size()) use_text(text.substr(begin));
}

}  // namespace metaformer
