#include "text/sentencepiece_file.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
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

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece(std::string model, const std::string& source) {
  const std::string kind(is_unigram(model) ? UnigramTokenizerOptions::kind : BpeTokenizerOptions::kind);
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(kind, Whitespace::kept, std::move(model), source);
  require_restored_text(*tokenizer, source);
  return tokenizer;
}

}  // namespace metaformer
