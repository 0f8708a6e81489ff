#pragma once
// Tokens that are no part of a text: beginning, end and padding.

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace metaformer {

// The tokens with which a model from elsewhere begins, ends and pads texts.
struct SpecialTokens {
  std::optional<std::int32_t> bos, pad;      // ids
  std::vector<std::int32_t> eos;             // ids, each of which ends a text
  std::map<std::string, std::string> names;  // "eos_token" -> "<|endoftext|>", as in tokenizer_config.json

  bool operator==(const SpecialTokens&) const = default;
};

// Tokenizers of pieces of words: byte-level BPE, and sentencepiece.
class SubwordTokenizer : public Tokenizer {
 public:
  const SpecialTokens& special_tokens() const { return special_tokens_; }
  void set_special_tokens(SpecialTokens tokens) { special_tokens_ = std::move(tokens); }

  // A token as its file writes it; "" for an id that no token has.
  virtual std::string token_name(std::int32_t id) const = 0;

 protected:
  // `json` with the special tokens, where there are any.
  nlohmann::ordered_json with_special_tokens(nlohmann::ordered_json json) const;

 private:
  SpecialTokens special_tokens_;
};

// The special tokens of a SubwordTokenizer; other tokenizers have none.
SpecialTokens special_tokens_of(const Tokenizer& tokenizer);

// The ids that no token has, ascending: a model's table of embeddings may have more rows than there are tokens.
std::vector<std::int32_t> ids_without_token(const Tokenizer& tokenizer);

// The content of a JSON file of a Hugging Face folder; null if there is no such file, discarded if it is not JSON.
nlohmann::json read_json_file(const std::filesystem::path& file);

// Reads the special tokens of a Hugging Face folder. Ids come from generation_config.json, then from config.json, where
// absent keys have the defaults of the model type; without config.json they are those of the names. Names come from
// tokenizer_config.json, then from special_tokens_map.json, then from the ids. Tokens that the tokenizer lacks are left
// out. Errors (exit code 3): one of these files except config.json is not a JSON object.
SpecialTokens read_special_tokens(const std::filesystem::path& folder, const SubwordTokenizer& tokenizer);

// Special tokens as they are written into a checkpoint's tokenizer.json, and back; nothing if `json` has another form.
nlohmann::ordered_json to_json(const SpecialTokens& tokens);
std::optional<SpecialTokens> special_tokens_from_json(const nlohmann::json& json, std::int64_t vocabulary);

}  // namespace metaformer
