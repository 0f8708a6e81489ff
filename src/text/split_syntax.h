#pragma once
// Regular expressions of tokenizer files are written for Oniguruma, in Ruby's syntax.

#include <string>
#include <string_view>

namespace metaformer {

// The same expression for PCRE2 with UTF and UCP. Errors (exit code 3) name `source` and the part whose meaning differs
// between the two libraries or depends on their version of Unicode: it is refused, unless it can be rewritten.
std::string to_pcre2(std::string_view pattern, const std::string& source);

}  // namespace metaformer
