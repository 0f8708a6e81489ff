#pragma once
// Reads tokenizers that this program has saved.

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace metaformer {

// Reads tokenizer.json; `source` names it in errors (exit code 3).
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& json_text, const std::string& source);

}  // namespace metaformer
