#pragma once
// Tokenizers without training: bytes, characters, numbers.

#include <unordered_map>

#include "text/tokenizer.h"

namespace metaformer {

// Every byte is a token: 256 tokens, for any file.
class ByteTokenizer : public Tokenizer {
 public:
  std::int64_t vocabulary_size() const override { return 256; }
  std::vector<std::int32_t> encode(std::string_view text) const override;
  bool restores_text() const override { return true; }
  std::string decode(std::span<const std::int32_t> ids) const override;
  nlohmann::ordered_json to_json() const override;
};

// One token per Unicode code point that occurs in the text, in code point order (the order nanoGPT uses). With
// Unknown::map the last id stands for all other characters; it is decoded as U+FFFD, the replacement character.
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
  bool restores_text() const override { return unknown_ == Unknown::refuse; }
  std::vector<std::int32_t> token_bytes(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  nlohmann::ordered_json to_json() const override;

 private:
  std::vector<std::string> characters_;                  // UTF-8, by id
  std::unordered_map<std::uint32_t, std::int32_t> ids_;  // by code point
  Unknown unknown_;
};

// The numbers 0 ... count - 1 as tokens with the same ids, for lists to be sorted.
class NumberTokenizer : public Tokenizer {
 public:
  static constexpr std::string_view kind = "number";
  static constexpr std::int64_t largest_count = 1'000'000;

  // 1 <= count <= largest_count.
  explicit NumberTokenizer(std::int64_t count) : count_(count) {}

  std::int64_t vocabulary_size() const override { return count_; }

  // Reads numbers separated by commas or white space: "2 0 1", "2,0,1", "2, 0, 1".
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string token_separator() const override { return " "; }
  nlohmann::ordered_json to_json() const override;

 private:
  std::int64_t count_;
};

}  // namespace metaformer
