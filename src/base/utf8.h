#pragma once
// Code points of UTF-8, by the utf8cpp library.

#include <fmt/format.h>
#include <utf8.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/signals.h"

namespace metaformer {

// What an error or warning says about a file with NUL bytes, after its name.
constexpr std::string_view nul_bytes_problem =
    "has NUL bytes, and may be a PDF, a document of a word processor or UTF-16: convert it to plain UTF-8";

// The number of bytes before the first that is not ASCII, by eight at a time.
inline std::size_t ascii_length(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t eight = 0; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & 0x8080808080808080ULL) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

// The place of the first byte that is not valid UTF-8, or the size of the text.
inline std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0;;) {
    at += ascii_length(text.substr(at));
    if (at == text.size()) return at;
    auto end = at;  // of the characters that are not ASCII
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    const auto* bad = utf8::find_invalid(text.begin() + at, text.begin() + end);
    if (bad != text.begin() + end) return static_cast<std::size_t>(bad - text.begin());
    at = end;
  }
}

// "not valid UTF-8: byte 0xe9 at offset 17", or "" for valid text. `before`: bytes of the file before the text.
inline std::string utf8_defect(std::string_view text, std::size_t before = 0) {
  const auto bad = find_invalid_utf8(text);
  if (bad == text.size()) return "";
  return fmt::format("not valid UTF-8: byte 0x{:02x} at offset {}", static_cast<unsigned char>(text[bad]),
                     before + bad);
}

// Throws Error (exit code 3) naming the first invalid byte.
inline void require_utf8(std::string_view text) {
  if (const auto defect = utf8_defect(text); !defect.empty()) throw Error(ExitCode::data, defect);
}

// The same for a part of the file `source`, behind `bytes_before` and `lines_before`; the message also has the line and
// advice.
inline void require_utf8(std::string_view text, const std::string& source, std::size_t bytes_before = 0,
                         std::size_t lines_before = 0) {
  const auto defect = utf8_defect(text, bytes_before);
  if (defect.empty()) return;
  const auto valid = text.substr(0, find_invalid_utf8(text));
  const auto line = 1 + lines_before + static_cast<std::size_t>(std::ranges::count(valid, '\n'));
  throw Error(ExitCode::data,
              fmt::format("{}: {} (line {}); convert it, or set data.tokenizer.kind to byte", source, defect, line));
}

// Calls `use(code point)` in order. Throws Error (exit code 3) before the first call if the text is not valid, and
// Interrupted if a signal asks to stop.
template <class Use>
void for_each_code_point(std::string_view text, Use use) {
  constexpr std::ptrdiff_t piece = 1 << 20;
  require_utf8(text);
  for (auto at = text.begin(); at != text.end();) {
    throw_if_stopped();
    const auto end = text.end() - at > piece ? at + piece : text.end();
    while (at < end) use(utf8::unchecked::next(at));
  }
}

// Bytes of the character at the start of valid UTF-8.
inline std::size_t character_size(std::string_view text) {
  auto at = text.begin();
  utf8::unchecked::next(at);
  return static_cast<std::size_t>(at - text.begin());
}

inline std::string to_utf8(std::uint32_t point) {
  std::string text;
  utf8::append(static_cast<char32_t>(point), std::back_inserter(text));
  return text;
}

// Whether valid UTF-8 has no visible character: only white space, control characters and spaces without width.
inline bool is_blank(std::string_view text) {
  const auto is_unseen = [](char32_t point) {
    return point <= 0x20 || (point >= 0x7F && point <= 0xA0) || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200B) || point == 0x2028 || point == 0x2029 || point == 0x202F ||
           point == 0x205F || point == 0x3000 || point == 0xFEFF;
  };
  for (auto at = text.begin(); at != text.end();)
    if (!is_unseen(utf8::unchecked::next(at))) return false;
  return true;
}

// Some programs put a byte order mark (U+FEFF) in front of a file; it is no part of the text.
inline std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text;
}

inline void drop_byte_order_mark(std::string& text) {
  text.erase(0, text.size() - without_byte_order_mark(text).size());
}

// The number of bytes that start a character, which in valid text is the number of code points.
inline std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Byte offset of the n-th character, or the size of the text if it has fewer.
inline std::size_t byte_offset(std::string_view text, std::int64_t character) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && character-- == 0) return i;
  }
  return text.size();
}

}  // namespace metaformer
