#include "text/make_tokenizer.h"

#include "text/byte_tokenizer.h"
#include "text/character_tokenizer.h"
#include "text/pretrained_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/sentencepiece_training.h"
#include "text/word_tokenizer.h"

namespace metaformer {

namespace {

struct Maker {
  std::string_view text;
  Unknown unknown;
  std::unique_ptr<Tokenizer> operator()(const CharacterTokenizerOptions&) const {
    return std::make_unique<CharacterTokenizer>(CharacterTokenizer::from_text(text, unknown));
  }
  std::unique_ptr<Tokenizer> operator()(const ByteTokenizerOptions&) const { return std::make_unique<ByteTokenizer>(); }
  template <class Subword>
  std::unique_ptr<Tokenizer> operator()(const Subword& options) const {
    return std::make_unique<SentencePieceTokenizer>(std::string(Subword::kind), options.whitespace,
                                                    train_sentencepiece(options, text), "the trained model");
  }
  std::unique_ptr<Tokenizer> operator()(const WordTokenizerOptions& options) const {
    return std::make_unique<WordTokenizer>(WordTokenizer::from_text(options, text));
  }
  std::unique_ptr<Tokenizer> operator()(const PretrainedTokenizerOptions& options) const {
    return read_pretrained_tokenizer(options.path);
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options, std::string_view text, Unknown unknown) {
  return std::visit(Maker{text, unknown}, options);
}

}  // namespace metaformer
