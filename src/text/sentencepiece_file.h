#pragma once
// A sentencepiece model from elsewhere.

#include <memory>
#include <string>

#include "text/special_tokens.h"

namespace metaformer {

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

}  // namespace metaformer
