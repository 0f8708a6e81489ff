#pragma once
// Trains sentencepiece models on a text in memory.

#include <string>
#include <string_view>

#include "config/tokenizer_options.h"

namespace metaformer {

// The serialized model (sentencepiece's ModelProto). A function of the options and the text, whatever the machine: the
// library gets every distinct word with its count, in order. The vocabulary is smaller than asked for where the text
// has no more pieces. With white space kept, whatever the pieces cannot spell comes as bytes. Errors (exit code 3): a
// vocabulary that cannot hold the text's characters, with the least that can; no word in the text; not UTF-8.
std::string train_sentencepiece(const UnigramTokenizerOptions& options, std::string_view text);
std::string train_sentencepiece(const BpeTokenizerOptions& options, std::string_view text);

}  // namespace metaformer
