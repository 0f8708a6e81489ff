#pragma once
// SHA-256 of bytes in memory, as 64 hexadecimal digits.

#include <string>
#include <string_view>

namespace metaformer {

std::string sha256(std::string_view bytes);

}  // namespace metaformer
