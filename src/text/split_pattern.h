#pragma once
// Cuts text where a regular expression matches, by the PCRE2 library.

#include <functional>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;  // of PCRE2

namespace metaformer {

class SplitPattern {
 public:
  // `pattern` in the syntax of tokenizer files (text/split_pattern.cpp). Errors (exit code 3) name `source`: not a
  // valid or supported expression, or one that matches the empty text.
  SplitPattern(std::string_view pattern, const std::string& source);

  // Calls `use` with every match and with all text between matches, in order: together they are `text`, which must be
  // valid UTF-8. May be called from several threads. Throws Error (exit code 3) when a match takes too long.
  void split(std::string_view text, const std::function<void(std::string_view)>& use) const;

 private:
  std::shared_ptr<pcre2_real_code_8> code_;
  std::string source_;
};

}  // namespace metaformer
