#pragma once
// UTF-8 by code points, on the utf8cpp library.

#include <fmt/format.h>
#include <utf8.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace metaformer {

// Throws Error (exit code 3) naming line and byte of the first invalid sequence.
inline void require_utf8(std::string_view text, const std::string& source) {
  const auto bad = utf8::find_invalid(text.begin(), text.end());
  if (bad == text.end()) return;
  throw Error(ExitCode::data,
              fmt::format("{}: not valid UTF-8: byte 0x{:02x} at offset {} (line {}); convert it, or set "
                          "data.tokenizer.kind to byte",
                          source, static_cast<unsigned char>(*bad), bad - text.begin(),
                          1 + std::count(text.begin(), bad, '\n')));
}

// Calls `use(code point)` in order; invalid input is an Error as above.
template <class Use>
void for_each_code_point(std::string_view text, Use use) {
  require_utf8(text, "text");
  for (auto at = text.begin(); at != text.end();) use(utf8::unchecked::next(at));
}

inline std::string to_utf8(std::uint32_t point) {
  std::string text;
  utf8::append(static_cast<char32_t>(point), std::back_inserter(text));
  return text;
}

// Bytes that start a character. Equals the number of code points where the text is valid.
inline std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace metaformer
