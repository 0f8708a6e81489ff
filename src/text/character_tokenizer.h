#pragma once
// One token per Unicode code point that occurs in the text, in code point order (the order nanoGPT uses).
// With Unknown::map the last id stands for all others; it is decoded as U+FFFD, the replacement character.

#include <unordered_map>

#include "text/tokenizer.h"

namespace metaformer {

class CharacterTokenizer : public Tokenizer {
 public:
  static CharacterTokenizer from_text(std::string_view text, Unknown unknown = Unknown::refuse);

  // `characters`: one code point each, none twice; errors (exit code 3) name `source`.
  CharacterTokenizer(std::vector<std::string> characters, const std::string& source, Unknown unknown = Unknown::refuse);

  std::int64_t vocabulary_size() const override {
    return static_cast<std::int64_t>(characters_.size()) + (unknown_ == Unknown::map);
  }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::optional<std::int32_t> unknown_id() const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  nlohmann::ordered_json to_json() const override;

 private:
  std::int32_t id_of_unknown(std::uint32_t point) const;

  std::vector<std::string> characters_;                  // UTF-8, by id
  std::unordered_map<std::uint32_t, std::int32_t> ids_;  // by code point
  Unknown unknown_;
};

}  // namespace metaformer
