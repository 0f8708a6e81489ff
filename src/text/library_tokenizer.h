#pragma once
// Tokenizers in the format of the library `tokenizers`, which `transformers` uses.

#include <string>

#include "text/tokenizer.h"

namespace metaformer {

struct LibraryTokenizer {
  std::string file;     // the content of tokenizer.json; "" where the library has no such tokenizer
  std::string problem;  // why it has none
};

// A file that gives the ids of `tokenizer` to every text, and refuses the texts that `tokenizer` refuses. Special
// tokens are not found in texts, except by tokenizers that were read from such a file.
LibraryTokenizer to_library_tokenizer(const Tokenizer& tokenizer);

}  // namespace metaformer
