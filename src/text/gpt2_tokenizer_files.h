#pragma once
// The two files in which GPT-2's tokenizer was published: vocab.json, tokens with their ids, and merges.txt, pairs of
// tokens, the first to be merged first.

#include <string>

namespace metaformer {

// The tokenizer.json that means the same (text/tokenizer_json.h), in which <|endoftext|> is an added token. Errors
// (exit code 3) name the file, and the line of merges.txt.
std::string tokenizer_json_of(const std::string& vocab_json, const std::string& vocab_source,
                              const std::string& merges_txt, const std::string& merges_source);

}  // namespace metaformer
