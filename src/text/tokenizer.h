#pragma once
// Text to token ids and back.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "config/data_config.h"

namespace metaformer {

// Converts text to token ids and back. Ids are 0 ... vocabulary_size() - 1.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::int64_t vocabulary_size() const = 0;

  // Errors (exit code 3) name the first byte offset that is not valid UTF-8, or the text that is not in the vocabulary.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  // The token for everything that is not in the vocabulary, if there is such a token.
  virtual std::optional<std::int32_t> unknown_id() const { return std::nullopt; }

  // Whether token `id` begins a word if it follows token `before`; otherwise it continues the word of that token.
  virtual bool begins_word(std::int32_t id, std::int32_t before) const { return (void)id, (void)before, true; }

  // Subword regularisation (Kudo 2018): a random segmentation of `text`, with probabilities to the power `alpha`. It is
  // a function of (text, alpha, rng): the i-th word uses rng.uniform(i). Tokenizers with only one segmentation just
  // encode.
  virtual std::vector<std::int32_t> encode_sampled(std::string_view text, double /*alpha*/, const Rng& /*rng*/) const {
    return encode(text);
  }

  // For bytes, and for characters without an unknown token, decode(encode(text)) == text. Words and numbers are decoded
  // to a normal form that encodes to the same ids, except unknown ones. Ids must be valid.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // Whether decode(encode(text)) == text for every text that `encode` accepts.
  virtual bool restores_text() const { return false; }

  // The number of bytes of the text that each token of `encode` stands for; the sum is the size of the text. A
  // tokenizer that changes words gives the bytes of a word to its first token, with the white space before it.
  virtual std::vector<std::int32_t> token_bytes(std::string_view text) const {
    std::vector<std::int32_t> bytes;
    for (const auto id : encode(text)) bytes.push_back(static_cast<std::int32_t>(decode(std::vector{id}).size()));
    return bytes;
  }

  // The information that is needed besides the ids to restore a text: a string for each kind of information, with
  // terminators of 0xff, which does not occur in UTF-8. Nothing if it is not known.
  virtual std::optional<std::vector<std::string>> lost(std::string_view text) const { return (void)text, std::nullopt; }

  // The text between two tokens that are decoded one by one.
  virtual std::string token_separator() const { return ""; }

  // The content of tokenizer.json, which `load_tokenizer` reads.
  virtual nlohmann::ordered_json to_json() const = 0;
};

// How characters that are not in the vocabulary are treated: as an Error, or as the unknown token. Words always have an
// unknown token, bytes never need one.
enum class Unknown { refuse, map };

// Converts data to numbers and back. Saved with every checkpoint, so that a model always has the same numbering.
struct Codec {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::string> labels;  // of classes, by class id; empty if there are none
};

}  // namespace metaformer
