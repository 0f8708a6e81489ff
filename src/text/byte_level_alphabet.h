#pragma once
// The printable characters that stand for bytes in the files of byte-level tokenizers (GPT-2, Radford et al. 2019):
// most bytes that are printed in Latin-1 stand for themselves, the others follow from U+0100 on; a space is U+0120.

#include <optional>
#include <string>
#include <string_view>

namespace metaformer {

// The bytes that valid UTF-8 stands for; nothing when it has a character that stands for none.
std::optional<std::string> from_byte_level(std::string_view text);

std::string to_byte_level(std::string_view bytes);

}  // namespace metaformer
