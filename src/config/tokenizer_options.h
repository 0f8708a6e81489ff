#pragma once
// What a config can say about the tokenizer: one struct per kind. data/ makes the tokenizer from it.

#include <cstdint>
#include <string>
#include <variant>

#include "config/schema.h"

namespace metaformer {

// What becomes of the white space between words. A language model needs it kept, to predict and to write.
enum class Whitespace { dropped, kept };
template <>
struct EnumNames<Whitespace> {
  static constexpr std::array<std::string_view, 2> values = {"dropped", "kept"};
};

constexpr const char* whitespace_help =
    "dropped: it only separates words; kept: decoding gives it back, as a language model needs; default: kept for task "
    "language_model, else dropped";

// The characters that may join words: ASCII, printed, neither letters nor digits.
constexpr bool is_joiner(char c) {
  return c > ' ' && c < '\x7f' && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
}

struct CharacterTokenizerOptions {
  static constexpr std::string_view kind = "character";
  static constexpr std::string_view summary = "one token per character (code point) of the corpus";
};

struct ByteTokenizerOptions {
  static constexpr std::string_view kind = "byte";
  static constexpr std::string_view summary = "one token per byte, 256 in all";
};

struct WordTokenizerOptions {
  static constexpr std::string_view kind = "word";
  static constexpr std::string_view summary = "one token per word or punctuation mark";
  std::int64_t vocabulary = 30000;
  std::int64_t min_count = 2;
  bool lowercase = true;
  FreeText joiners = "'";
  Whitespace whitespace = Whitespace::dropped;
};

struct UnigramTokenizerOptions {
  static constexpr std::string_view kind = "unigram";
  static constexpr std::string_view summary = "sentencepiece's unigram model of subwords (Kudo 2018)";
  std::int64_t vocabulary = 8000;
  double character_coverage = 0.9995;
  bool lowercase = false;
  Whitespace whitespace = Whitespace::dropped;
  double sampling = 0;
};

struct BpeTokenizerOptions {
  static constexpr std::string_view kind = "bpe";
  static constexpr std::string_view summary = "sentencepiece's byte-pair encoding (Sennrich et al. 2016)";
  std::int64_t vocabulary = 8000;
  double character_coverage = 0.9995;
  bool lowercase = false;
  Whitespace whitespace = Whitespace::dropped;
};

struct PretrainedTokenizerOptions {
  static constexpr std::string_view kind = "pretrained";
  static constexpr std::string_view summary =
      "a tokenizer from elsewhere: byte-level BPE or sentencepiece's, from files";
  PathText path;
};

using TokenizerOptions = std::variant<CharacterTokenizerOptions, ByteTokenizerOptions, WordTokenizerOptions,
                                      UnigramTokenizerOptions, BpeTokenizerOptions, PretrainedTokenizerOptions>;

// Whether texts lose the white space between words.
inline bool drops_whitespace(const TokenizerOptions& options) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.whitespace; }) return kind.whitespace == Whitespace::dropped;
        return false;
      },
      options);
}

// Whether a token may be a part of a word (Tokenizer::begins_word). To these tokenizers each token is a word.
inline bool cuts_words(const TokenizerOptions& options) {
  return !std::holds_alternative<CharacterTokenizerOptions>(options) &&
         !std::holds_alternative<ByteTokenizerOptions>(options) &&
         !std::holds_alternative<WordTokenizerOptions>(options);
}

template <class Visitor>
void visit(Visitor&, CharacterTokenizerOptions&) {}

template <class Visitor>
void visit(Visitor&, ByteTokenizerOptions&) {}

template <class Visitor>
void visit(Visitor& field, WordTokenizerOptions& o) {
  field("vocabulary", o.vocabulary, between(2, 1 << 24), "most frequent words kept, the unknown word included");
  field("min_count", o.min_count, between(1, 1 << 30), "rarer words of the training texts become the unknown word");
  field("lowercase", o.lowercase, "letters in lower case (Unicode)");
  field("joiners", o.joiners,
        "characters that do not split a word if there is only one of them between letters or digits: ' keeps don't, / "
        "keeps 8/10");
  field("whitespace", o.whitespace, whitespace_help);
}

template <class Visitor, class Options>
void visit_sentencepiece(Visitor& field, Options& o) {
  field("vocabulary", o.vocabulary, between(16, 1 << 20), "pieces, the unknown one included");
  field("character_coverage", o.character_coverage, between(0.9, 1),
        "fraction of the characters of the training texts that the pieces must cover");
  field("lowercase", o.lowercase, "letters folded to lower case (Unicode)");
  field("whitespace", o.whitespace, whitespace_help);
}

template <class Visitor>
void visit(Visitor& field, UnigramTokenizerOptions& o) {
  visit_sentencepiece(field, o);
  field("sampling", o.sampling, between(0, 10),
        "subword regularisation: classification cuts its training texts anew every epoch, with probabilities to this "
        "power; 0: never");
}

template <class Visitor>
void visit(Visitor& field, BpeTokenizerOptions& o) {
  visit_sentencepiece(field, o);
}

template <class Visitor>
void visit(Visitor& field, PretrainedTokenizerOptions& o) {
  field("path", o.path,
        "folder as Hugging Face writes it, with tokenizer.json, vocab.json and merges.txt, or tokenizer.model; or one "
        "of these files");
}

}  // namespace metaformer
