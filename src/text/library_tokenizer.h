#pragma once
// Tokenizers in the format of the library `tokenizers`, which `transformers` uses.

#include <string>

#include "text/tokenizer.h"

namespace metaformer {

struct LibraryTokenizer {
  std::string file;     // the content of tokenizer.json; "" where the library has no such tokenizer
  std::string problem;  // why the library has none
};

// A file with which the library gives the ids of `tokenizer` to every text, and refuses the texts that `tokenizer`
// refuses. Special tokens are not found in texts, except by tokenizers that were read from such a file.
LibraryTokenizer to_library_tokenizer(const Tokenizer& tokenizer);

// The tokenizer.json that is equivalent to the two published files of GPT-2's tokenizer: vocab.json (tokens with their
// ids) and merges.txt (pairs of tokens). <|endoftext|> is an added token. Errors (exit code 3) name the file, and the
// line of merges.txt.
std::string gpt2_tokenizer_json(const std::string& vocab_json, const std::string& vocab_source,
                                const std::string& merges_txt, const std::string& merges_source);

}  // namespace metaformer
