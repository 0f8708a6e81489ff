#pragma once
// Trains sentencepiece models on a text in memory.

#include <string>
#include <string_view>

#include "config/tokenizer_options.h"

namespace metaformer {

// The serialized model (sentencepiece's ModelProto). A function of the options and the text on any machine: the
// library receives every distinct word with its count, in order. The vocabulary is smaller than requested if the text
// has fewer pieces. If white space is kept, text that no pieces spell is encoded as bytes. Errors (exit code 3): a
// vocabulary too small for the text's characters, with the smallest possible one; no word in the text; not UTF-8.
std::string train_sentencepiece(const UnigramTokenizerOptions& options, std::string_view text);
std::string train_sentencepiece(const BpeTokenizerOptions& options, std::string_view text);

}  // namespace metaformer
