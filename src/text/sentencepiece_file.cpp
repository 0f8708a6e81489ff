#include "text/sentencepiece_file.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "text/sentencepiece_tokenizer.h"

namespace metaformer {

namespace {

// Only the unigram model knows the n likeliest segmentations.
bool is_unigram(const std::string& model) {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<std::vector<int>> likeliest;
  return processor.LoadFromSerializedProto(model).ok() && processor.NBestEncode("a", 1, &likeliest).ok();
}

// What the usual rules of normalisation change: spaces in a row, forms of characters, case.
void require_restored_text(const Tokenizer& tokenizer, const std::string& source) {
  for (const std::string text : {"a", " a  b ", "\n\t a", "\uFF21", "e\u0301", "\u2460", "A"}) {
    const auto restored = tokenizer.decode(tokenizer.encode(text));
    if (restored != text)
      throw Error(ExitCode::data,
                  fmt::format("{}: its normaliser makes {} of {}; only a model that restores every text "
                              "is supported: of rule identity, that keeps spaces in a row",
                              source, in_quotes(restored), in_quotes(text)));
  }
}

// The fields of a message in the wire format of protocol buffers.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  // False at the end, and at what is no field.
  bool next() {
    if (rest_.empty()) return false;
    const auto tag = varint();
    number = tag >> 3;
    value = 0;
    bytes = {};
    switch (tag & 7) {
      case 0:
        value = varint();
        return true;
      case 1:
        return skip(8);
      case 2:
        value = varint();
        bytes = rest_.substr(0, value);
        return skip(value);
      case 5:
        return skip(4);
      default:
        return false;
    }
  }

  std::uint64_t number = 0, value = 0;
  std::string_view bytes;

 private:
  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      result |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) break;
    }
    return result;
  }
  bool skip(std::uint64_t count) {
    if (count > rest_.size()) return false;
    rest_.remove_prefix(count);
    return true;
  }

  std::string_view rest_;
};

bool is_symbol(std::string_view piece_message) {
  constexpr std::uint64_t user_defined = 4;
  std::string_view piece;
  std::uint64_t type = 1;
  for (Fields fields(piece_message); fields.next();) {
    if (fields.number == 1) piece = fields.bytes;
    if (fields.number == 3) type = fields.value;
  }
  return type == user_defined && count_characters(piece) > 1;
}

}  // namespace

std::unique_ptr<SubwordTokenizer> read_sentencepiece(std::string model, const std::string& source) {
  const std::string kind(is_unigram(model) ? UnigramTokenizerOptions::kind : BpeTokenizerOptions::kind);
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(kind, Whitespace::kept, std::move(model), source);
  require_restored_text(*tokenizer, source);
  return tokenizer;
}

// Field numbers of sentencepiece_model.proto.
SentencePieceTraits traits_of_sentencepiece(std::string_view model) {
  SentencePieceTraits traits;
  for (Fields fields(model); fields.next();) {
    if (fields.number == 1) traits.has_symbols = traits.has_symbols || is_symbol(fields.bytes);
    if (fields.number == 2)
      for (Fields trainer(fields.bytes); trainer.next();)
        if (trainer.number == 24) traits.marks_ends = trainer.value != 0;
    if (fields.number == 3)
      for (Fields normalizer(fields.bytes); normalizer.next();)
        if (normalizer.number == 2) traits.normalises = !normalizer.bytes.empty();
  }
  return traits;
}

}  // namespace metaformer
