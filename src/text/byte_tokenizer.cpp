#include "text/byte_tokenizer.h"

#include <nlohmann/json.hpp>

namespace metaformer {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text(ids.size(), '\0');
  for (std::size_t i = 0; i < ids.size(); ++i) text[i] = static_cast<char>(ids[i]);
  return text;
}

nlohmann::ordered_json ByteTokenizer::to_json() const { return {{"kind", ByteTokenizerOptions::kind}}; }

}  // namespace metaformer
