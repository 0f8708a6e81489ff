#include "text/byte_level_alphabet.h"

#include <utf8.h>

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace metaformer {

namespace {

constexpr std::uint32_t first_other = 0x100;

constexpr bool stands_for_itself(std::uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

constexpr std::size_t others = 68;  // bytes that do not stand for themselves

struct Alphabet {
  std::array<std::uint32_t, 256> points{};    // by byte
  std::array<unsigned char, others> bytes{};  // by point - first_other
};

constexpr Alphabet alphabet = [] {
  Alphabet made;
  std::uint32_t count = 0;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    made.points[byte] = stands_for_itself(byte) ? byte : first_other + count;
    if (!stands_for_itself(byte)) made.bytes[count++] = static_cast<unsigned char>(byte);
  }
  return made;
}();

}  // namespace

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (auto at = text.begin(); at != text.end();) {
    const std::uint32_t point = utf8::unchecked::next(at);
    if (point < first_other && stands_for_itself(point)) {
      bytes += static_cast<char>(point);
    } else if (point >= first_other && point < first_other + others) {
      bytes += static_cast<char>(alphabet.bytes[point - first_other]);
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += to_utf8(alphabet.points[static_cast<unsigned char>(byte)]);
  return text;
}

}  // namespace metaformer
