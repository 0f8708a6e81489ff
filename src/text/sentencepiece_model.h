#pragma once
// Models of sentencepiece: read and trained.

#include <memory>
#include <string>
#include <string_view>

#include "config/data_config.h"
#include "text/special_tokens.h"

namespace metaformer {

// A sentencepiece model from elsewhere.

// `model`: the bytes of a tokenizer.model. Errors (exit code 3) name `source`: not a model; not one with pieces for
// bytes that restores every text, because it normalises; one with pieces that reach beyond a word.
std::unique_ptr<SubwordTokenizer> read_sentencepiece(std::string model, const std::string& source);

struct SentencePieceTraits {
  bool normalises = false;   // characters, by a table
  bool marks_ends = false;   // the mark of a space stands behind a word
  bool has_symbols = false;  // symbols of several characters that are found before all else
};

// What the ids of a valid model depend on besides its pieces and their scores.
SentencePieceTraits traits_of_sentencepiece(std::string_view model);

// Trains sentencepiece models on a text in memory.

// The serialized model (sentencepiece's ModelProto). A function of the options and the text on any machine: the
// library receives every distinct word with its count, in order. The vocabulary is smaller than requested if the text
// has fewer pieces. If white space is kept, text that no pieces spell is encoded as bytes. Errors (exit code 3): a
// vocabulary too small for the text's characters, with the smallest possible one; no word in the text; not UTF-8.
std::string train_sentencepiece(const UnigramTokenizerOptions& options, std::string_view text);
std::string train_sentencepiece(const BpeTokenizerOptions& options, std::string_view text);

}  // namespace metaformer
