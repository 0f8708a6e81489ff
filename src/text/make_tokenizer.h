#pragma once
// Makes tokenizers from options.

#include <memory>
#include <string>
#include <string_view>

#include "config/tokenizer_options.h"
#include "text/tokenizer.h"

namespace metaformer {

// Builds the tokenizer that `options` describe, from `text` if it depends on one. Errors: exit code 3.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options, std::string_view text,
                                          Unknown unknown = Unknown::refuse);

}  // namespace metaformer
