#pragma once
// A sentencepiece model from elsewhere.

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace metaformer {

// `model`: the bytes of a tokenizer.model. Errors (exit code 3) name `source`: not a model; not one with pieces for
// bytes that restores every text, because it normalises; one with pieces that reach beyond a word.
std::unique_ptr<Tokenizer> read_sentencepiece(std::string model, const std::string& source);

}  // namespace metaformer
