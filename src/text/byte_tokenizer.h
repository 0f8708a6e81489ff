#pragma once
// Every byte is a token: 256 tokens, for any file.

#include "text/tokenizer.h"

namespace metaformer {

class ByteTokenizer : public Tokenizer {
 public:
  std::int64_t vocabulary_size() const override { return 256; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  nlohmann::ordered_json to_json() const override;
};

}  // namespace metaformer
