#pragma once
// The tokenizer "13a" of sacreBLEU (Post 2018, "A call for clarity in reporting BLEU scores"), which is that of WMT's
// mteval-v13a.pl: marks are tokens, and points, commas and hyphens stay within numbers.

#include <string>
#include <string_view>
#include <vector>

namespace metaformer {

// The tokens of one line of UTF-8, in order; none is empty or has white space. Bytes that are not valid are parts of
// words. No errors.
std::vector<std::string> tokenize_13a(std::string_view line);

}  // namespace metaformer
