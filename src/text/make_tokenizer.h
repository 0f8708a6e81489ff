#pragma once
// Tokenizers from options, and from the files that they are kept in.

#include <memory>
#include <string>
#include <string_view>

#include "config/tokenizer_options.h"
#include "text/tokenizer.h"

namespace metaformer {

// Builds the tokenizer that `options` describe, from `text` where it depends on it. Errors: exit code 3.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options, std::string_view text,
                                          Unknown unknown = Unknown::refuse);

// Reads tokenizer.json; `source` names it in errors (exit code 3).
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& json_text, const std::string& source);

}  // namespace metaformer
